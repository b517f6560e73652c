"""The result of a check: its name, its level, and a message with what was seen, what was expected, and the fix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from proximo.errors import EnvironmentFault, ProximoError

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        check: Name of the check.
        level: ``error``: training fails or learns from wrong data. ``warning``: training works, but something is probably not
            intended. ``ok``: nothing was found.
        message: What was seen, what was expected, and the fix.
    """

    check: str
    level: Level
    message: str


def ok(check: str, message: str) -> Finding:
    """A finding of level ``ok``."""
    return Finding(check, "ok", message)


def warning(check: str, message: str) -> Finding:
    """A finding of level ``warning``."""
    return Finding(check, "warning", message)


def error(check: str, message: str) -> Finding:
    """A finding of level ``error``."""
    return Finding(check, "error", message)


def run_check(check: str, function: Callable[[], Finding | str], fix: str = "") -> Finding:
    """Run one check and convert its result to a finding.

    Args:
        check: Name of the check.
        function: Returns a finding, or a message of level ``ok``; raises an error of proximo if the check fails.
        fix: A sentence to append to the message of an error.
    """
    try:
        result = function()
    except (ProximoError, EnvironmentFault) as fault:
        return error(check, f"{str(fault).splitlines()[0]} {fix}".rstrip())
    return ok(check, result) if isinstance(result, str) else result


def worst(findings: Sequence[Finding]) -> Level:
    """The worst level of all findings."""
    levels = {finding.level for finding in findings}
    return "error" if "error" in levels else "warning" if "warning" in levels else "ok"


def verdict(env_id: str, findings: Sequence[Finding]) -> str:
    """Summarize all findings in one sentence."""
    errors, warnings = (sum(f.level == level for f in findings) for level in ("error", "warning"))
    warned = f"{warnings} warning{'s' if warnings > 1 else ''}"
    if errors:
        beside = f" and {warned}" if warnings else ""
        return f"{env_id} cannot be trained as it is: {errors} error{'s' if errors > 1 else ''}{beside}."
    return f"{env_id} can be trained{f', with {warned}' if warnings else ': no problem was found'}."
