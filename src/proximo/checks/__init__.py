"""Checks whether an environment can be trained. Each check examines one property and returns findings."""

from proximo.checks.before_training import check_before_training
from proximo.checks.environment import check_environment, check_names
from proximo.checks.finding import Finding, verdict, worst
from proximo.checks.hints import hints
from proximo.checks.policy import check_policy
from proximo.checks.quick import quick_check

__all__ = [
    "Finding",
    "check_before_training",
    "check_environment",
    "check_names",
    "check_policy",
    "hints",
    "quick_check",
    "verdict",
    "worst",
]
