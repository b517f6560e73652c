"""Reporters, which show a person the progress of a training, and the window of metrics between two log rows."""

from __future__ import annotations

import warnings
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from proximo.config import Config

EPISODE_WINDOW = 100


class Reporter:
    """Receives the events of a training.

        class PrintEvaluations(proximo.tracking.reporter.Reporter):
            def evaluated(self, steps, summaries):
                print(steps, [summary["return_mean"] for summary in summaries])

        proximo.train("CartPole-v1", reporter=PrintEvaluations())

    This class ignores all events. Override the methods that you need.
    """

    owns_process = False
    """Whether the process exists only for this training. If a compiled call does not return after the user interrupts, proximo then ends
    the process; otherwise it raises ``KeyboardInterrupt``."""

    def started(self, config: Config, run_dirs: list[Path], facts: dict[str, Any]) -> None:
        """A training starts.

        Args:
            config: the settings.
            run_dirs: the run directory of each seed.
            facts: spaces, network and device, described in words.
        """

    def begun(self, run_dirs: list[Path], steps: int) -> None:
        """Some seeds start: all of them if they train in one program, otherwise one after the other.

        Args:
            run_dirs: their run directories.
            steps: the step that they start from.
        """

    def compiling(self) -> None:
        """A program is being compiled."""

    def compiled(self, how: str) -> None:
        """All programs are compiled.

        Args:
            how: how environments are stepped, described in words.
        """

    def advanced(self, steps: int, steps_per_second: float, recent_return: float | None) -> None:
        """Some updates are finished.

        Args:
            steps: environment steps so far.
            steps_per_second: environment steps per second.
            recent_return: mean return of about the last hundred episodes; None before the first one has ended.
        """

    def evaluating(self) -> None:
        """An evaluation starts, which may take long."""

    def evaluated(self, steps: int, summaries: list[dict[str, Any]]) -> None:
        """An evaluation is finished.

        Args:
            steps: environment steps so far.
            summaries: for each seed, ``return_mean`` and the other entries of ``proximo eval --json``.
        """

    def warned(self, message: str) -> None:
        """There is a problem, but the training continues.

        Args:
            message: a sentence about it.
        """

    def stopping(self) -> None:
        """The user interrupted the training. It stops after the current call of the compiled program."""

    def stopped(self, message: str) -> None:
        """The training stops early.

        Args:
            message: where it stopped, and how to continue.
        """

    def left(self, message: str) -> None:
        """The process ends at once, because a call that cannot be stopped is still running.

        Args:
            message: what was saved, and how to continue.
        """

    def finished(self, results: list[Any]) -> None:
        """The training is finished.

        Args:
            results: one ``Result`` for each seed.
        """


class Warner(Reporter):
    """The default of ``train`` and ``resume``: problems become Python warnings."""

    def warned(self, message: str) -> None:
        warnings.warn(message, stacklevel=2)


class Window:
    """Collects the metrics of several updates, to merge them into one row, and the return of the last hundred episodes."""

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []
        self._recent: deque[tuple[float, float]] = deque()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, metrics: dict[str, np.ndarray]) -> None:
        """Append the metrics of some updates: arrays by name, with one entry for each update."""
        for i in range(len(next(iter(metrics.values())))):
            row = {name: float(x[i]) for name, x in metrics.items()}
            self._rows.append(row)
            if row["rollout/episodes"]:
                self._recent.append((row["rollout/episodes"], row["rollout/return_mean"]))
        while self._recent and sum(count for count, _ in self._recent) - self._recent[0][0] >= EPISODE_WINDOW:
            self._recent.popleft()

    @property
    def recent_return(self) -> float | None:
        """Mean return of about the last hundred finished episodes; None before the first."""
        count = sum(count for count, _ in self._recent)
        return sum(count * mean for count, mean in self._recent) / count if count else None

    def merge(self) -> dict[str, float]:
        """One row for all updates since the last merge: sums of counts, means over episodes in ``rollout/``, extremes of the ratio, else means."""
        rows, self._rows = self._rows, []
        return {
            name: _merged(name, [row for row in rows if not np.isnan(row.get(name, np.nan))])
            for name in dict.fromkeys(name for row in rows for name in row)
            if not name.startswith("bad/")
        }


def _merged(name: str, rows: list[dict[str, float]]) -> float:
    """The values of ``name`` in ``rows`` as one number."""
    values = np.array([row[name] for row in rows])
    if name in ("rollout/episodes", "rollout/restarts"):
        return float(values.sum())
    if name.startswith("rollout/"):
        weights = np.array([row["rollout/episodes"] for row in rows])
        return float((values * weights).sum() / weights.sum()) if weights.sum() else float("nan")
    if not len(values):
        return float("nan")
    return float({"ratio_min": np.min, "ratio_max": np.max}.get(name.split("/")[1], np.mean)(values))
