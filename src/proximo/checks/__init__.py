"""Checks whether an environment can be trained. Each check examines one property and returns findings."""

from proximo.checks.environment import check_environment
from proximo.checks.finding import Finding, verdict, worst
from proximo.checks.hints import hints
from proximo.checks.policy import check_policy
from proximo.checks.quick import QuickCheck, quick_check, trains_as_in_preset

__all__ = [
    "Finding",
    "QuickCheck",
    "check_environment",
    "check_policy",
    "hints",
    "quick_check",
    "trains_as_in_preset",
    "verdict",
    "worst",
]
