"""Reporters of the progress of a study."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proximo.notebook import in_notebook
from proximo.tracking.lasting_stream import lasting
from proximo.tracking.progress import duration
from proximo.tracking.progress_displays import check_progress, draws_in_place

if TYPE_CHECKING:
    from proximo.tuning.plan import StudyPlan
    from proximo.tuning.record import Record


class Reporter:
    """Receives the events of a study, in the order of these methods. This class ignores them all; override what you need."""

    owns_process = False
    """As in ``proximo.Reporter``."""

    def started(self, folder: Path, plan: StudyPlan, trials: list[Record], shaping: set[str]) -> None:
        """A study begins, or continues after ``trials``. Each value of a setting in ``shaping`` needs its own compiled program."""

    def batch(self, numbers: list[int], shared: dict[str, Any]) -> None:
        """These trials train together, with the settings ``shared`` in common."""

    def advanced(self, share: float) -> None:
        """The share of the batch that is done, 0 … 1."""

    def finished(self, trial: Record, best: Record | None, seconds_left: float | None) -> None:
        """A trial is over; ``best`` is the best so far."""

    def final_round(self, trial: Record, seeds: int) -> None:
        """A finalist is trained again, on ``seeds`` other seeds."""

    def test(self, trial: Record, seeds: int) -> None:
        """The winner is trained again, on ``seeds`` test seeds."""

    def warned(self, message: str) -> None:
        """A warning; the study continues."""

    def stopping(self) -> None:
        """The user asked to stop."""

    def stopped(self, message: str) -> None:
        """The study ends early."""

    def exiting(self, message: str) -> None:
        """The process ends at once, because a call that cannot be stopped is still running."""


class Warner(Reporter):
    """Reports only warnings, as Python warnings."""

    def warned(self, message: str) -> None:
        warnings.warn(message, stacklevel=2)


class Lines(Warner):
    """Also prints a line for each finished trial."""

    total, over = 0, 0

    def started(self, folder: Path, plan: StudyPlan, trials: list[Record], shaping: set[str]) -> None:
        self.total, self.over = plan.trials, sum(t.state != "running" for t in trials)

    def finished(self, trial: Record, best: Record | None, seconds_left: float | None) -> None:
        self.over += 1
        self.print(finished_line(trial, best, self.over, self.total, seconds_left))

    def final_round(self, trial: Record, seeds: int) -> None:
        self.print(f"final round: {trial.name} on {seeds} other seeds")

    def test(self, trial: Record, seeds: int) -> None:
        self.print(f"test: {trial.name}, the winner, on {seeds} test seeds")

    def print(self, text: str) -> None:
        """Print one line."""
        print(text, file=sys.stdout and lasting(sys.stdout, self.warned), flush=True)


def reporter_for(reporter: Reporter | None, progress: bool | None) -> Reporter:
    """The reporter of a study that Python code starts: ``reporter`` if given. Otherwise it prints lines if ``progress`` is true; if None, on a
    terminal and in a notebook. Raises ``ConfigError`` if ``progress`` is true and a reporter is given."""
    check_progress(progress, reporter)
    if reporter is not None:
        return reporter
    shown = in_notebook() or draws_in_place(sys.stdout) if progress is None else progress
    return Lines() if shown else Warner()


def finished_line(trial: Record, best: Record | None, over: int, total: int, seconds_left: float | None) -> str:
    """The trial, the best score so far, and the time left."""
    name = trial.name.removeprefix("the ")
    reached = {"done": number(trial.score), "pruned": f"{number(trial.score)} pruned", "failed": f"failed: {trial.reason}"}[
        trial.state
    ]
    parts = [f"{name:<10} {reached}"]
    if best is not None:
        parts.append(f"best {number(best.score)} ({best.name.removeprefix('the ')})")
    parts.append(f"{over} of {total} finished")
    if seconds_left is not None:
        parts.append(f"{duration(seconds_left)} left")
    return " · ".join(parts)


def number(score: float | None) -> str:
    """Format a score with four digits: it may be a return of thousands or a success rate."""
    return "–" if score is None else f"{score:,.0f}" if abs(score) >= 10_000 else f"{score:.4g}"
