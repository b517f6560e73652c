"""Checks whether an environment can be trained. Each check examines one property and returns findings."""

from proximo.checks.before_training import check_before_training, quick_check
from proximo.checks.environment import check_environment, check_names
from proximo.checks.hints import Finding, hints, verdict

__all__ = ["Finding", "check_before_training", "check_environment", "check_names", "hints", "quick_check", "verdict"]
