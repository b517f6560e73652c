"""The result of a check: its name, its level, and a message."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from proximo.custom_code import custom_code_errors
from proximo.errors import ProximoError


@dataclass(frozen=True)
class Finding:
    """The result of one check, and what was seen, what was expected, and the fix. Level ``error``: training
    fails or learns from wrong data; ``warning``: it works, but something is probably not intended; ``ok``:
    nothing was found."""

    check: str
    level: Literal["ok", "warning", "error"]
    message: str


def run_check(check: str, env_id: str, function: Callable[[], Finding | str]) -> Finding:
    """Run one check. ``function`` returns a finding or a message of level ``ok``, or raises."""
    try:
        with custom_code_errors(env_id):
            result = function()
    except ProximoError as fault:
        return Finding(check, "error", str(fault).splitlines()[0])
    return Finding(check, "ok", result) if isinstance(result, str) else result


def verdict(env_id: str, findings: Sequence[Finding]) -> str:
    """Summarize all findings in one sentence."""
    counts = {level: sum(f.level == level for f in findings) for level in ("error", "warning")}
    counted = " and ".join(f"{n} {level}{'s' if n > 1 else ''}" for level, n in counts.items() if n)
    if counts["error"]:
        return f"{env_id} cannot be trained as it is: {counted}."
    return f"{env_id} can be trained{f', with {counted}' if counted else ': no problem was found'}."
