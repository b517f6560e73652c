"""Is an environment fit for training? Each check looks at one thing and gives its findings as sentences."""

from proximo.checks.environment import check_environment
from proximo.checks.finding import Finding, verdict, worst
from proximo.checks.policy import policy
from proximo.checks.quick import quick_check

__all__ = ["Finding", "check_environment", "policy", "quick_check", "verdict", "worst"]
