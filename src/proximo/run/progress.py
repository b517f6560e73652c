"""What a training tells of itself: rows of metrics, and a reporter that shows them to a person."""

from __future__ import annotations

import warnings
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from proximo.config import Config

EPISODE_WINDOW = 100


class Reporter:
    """Told what happens, in this order; every method may be overridden, and this one stays silent."""

    owns_process = False
    """Whether the process is there for this training alone: then a program that does not come back when the user stops it is left
    by ending the process, else by ``KeyboardInterrupt``."""

    def started(self, config: Config, run_dirs: list[Path], facts: dict[str, Any]) -> None:
        """A training begins; ``facts`` describes spaces, network and device in words."""

    def begun(self, run_dirs: list[Path], steps: int) -> None:
        """These seeds train together from ``steps`` on: all at once where they are vmapped, else one after the other."""

    def compiling(self) -> None:
        """A program is being compiled."""

    def compiled(self, how: str) -> None:
        """All is ready; ``how`` says in words how environments are stepped."""

    def advanced(self, steps: int, steps_per_second: float, recent_return: float | None) -> None:
        """Some updates are done."""

    def evaluating(self) -> None:
        """Episodes are being played, which may take as long as training."""

    def evaluated(self, steps: int, summaries: list[dict[str, Any]]) -> None:
        """An evaluation is done, a summary for each seed."""

    def warned(self, message: str) -> None:
        """Something is odd but training goes on."""

    def stopping(self) -> None:
        """The user has asked to stop, and what runs just now is finished first."""

    def stopped(self, message: str) -> None:
        """Training ends before its time."""

    def left(self, message: str) -> None:
        """The process ends at once, with ``message``: a call that cannot be ended is still running in it."""

    def finished(self, results: list[Any]) -> None:
        """Training is over, a ``Result`` for each seed."""


class Warner(Reporter):
    """The one of programs that have given none: what is odd becomes a warning of Python's."""

    def warned(self, message: str) -> None:
        warnings.warn(message, stacklevel=2)


class Window:
    """The rows of metrics of some updates, to be merged into one; and the return of the last hundred episodes."""

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []
        self._recent: deque[tuple[float, float]] = deque()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, metrics: dict[str, np.ndarray]) -> None:
        """Append one row for each entry of the arrays (updates)."""
        for i in range(len(next(iter(metrics.values())))):
            row = {name: float(x[i]) for name, x in metrics.items()}
            self._rows.append(row)
            if row["rollout/episodes"]:
                self._recent.append((row["rollout/episodes"], row["rollout/return_mean"]))
        while self._recent and sum(count for count, _ in self._recent) - self._recent[0][0] >= EPISODE_WINDOW:
            self._recent.popleft()

    @property
    def recent_return(self) -> float | None:
        """Mean return of about the last hundred finished episodes; None before the first one."""
        count = sum(count for count, _ in self._recent)
        return sum(count * mean for count, mean in self._recent) / count if count else None

    def merge(self) -> dict[str, float]:
        """One row for all since the last merge: means, by finished episodes for rollout/, extremes of the ratio."""
        rows, self._rows = self._rows, []
        return {
            name: _merged(name, [row for row in rows if not np.isnan(row.get(name, np.nan))])
            for name in dict.fromkeys(name for row in rows for name in row)
            if not name.startswith("bad/")
        }


def _merged(name: str, rows: list[dict[str, float]]) -> float:
    """One number of those that ``rows`` have under ``name``."""
    values = np.array([row[name] for row in rows])
    if name in ("rollout/episodes", "rollout/restarts"):
        return float(values.sum())
    if name.startswith("rollout/"):
        weights = np.array([row["rollout/episodes"] for row in rows])
        return float((values * weights).sum() / weights.sum()) if weights.sum() else float("nan")
    if not len(values):
        return float("nan")
    return float({"ratio_min": np.min, "ratio_max": np.max}.get(name.split("/")[1], np.mean)(values))
