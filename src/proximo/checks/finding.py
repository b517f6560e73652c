"""What a check has found: its name, how bad it is, and a sentence with what was seen, what was expected, and the fix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from proximo.errors import EnvironmentFault, ProximoError

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """``error``: training fails or learns from wrong data; ``warning``: it works, and something is probably not meant."""

    check: str
    level: Level
    says: str


def ok(check: str, says: str) -> Finding:
    """All is as it should be."""
    return Finding(check, "ok", says)


def warning(check: str, says: str) -> Finding:
    """Training works, but look at this."""
    return Finding(check, "warning", says)


def error(check: str, says: str) -> Finding:
    """Training would fail, or learn from wrong data."""
    return Finding(check, "error", says)


def judged(check: str, look: Callable[[], Finding | str], fix: str = "") -> Finding:
    """What ``look()`` returns, a bare sentence being ``ok``; what it raises as an error, with the fix behind it."""
    try:
        found = look()
    except (ProximoError, EnvironmentFault) as fault:
        return error(check, f"{str(fault).splitlines()[0]} {fix}".rstrip())
    return ok(check, found) if isinstance(found, str) else found


def worst(findings: Sequence[Finding]) -> Level:
    """The level of the worst of them."""
    levels = {finding.level for finding in findings}
    return "error" if "error" in levels else "warning" if "warning" in levels else "ok"


def verdict(env_id: str, findings: Sequence[Finding]) -> str:
    """All findings in one sentence."""
    errors, warnings = (sum(f.level == level for f in findings) for level in ("error", "warning"))
    warned = f"{warnings} warning{'s' if warnings > 1 else ''}"
    if errors:
        beside = f" and {warned}" if warnings else ""
        return f"{env_id} cannot be trained as it is: {errors} error{'s' if errors > 1 else ''}{beside}."
    return f"{env_id} can be trained{f', with {warned}' if warnings else ': nothing was found against it'}."
