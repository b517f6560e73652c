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
    from proximo.tuning.journal import Record
    from proximo.tuning.plan import StudyPlan


class Reporter:
    """Receives the events of a study. Override the methods that you need: this class ignores all events but warnings."""

    owns_process = False
    """As in ``proximo.Reporter``."""

    def started(self, folder: Path, plan: StudyPlan, trials: list[Record], shaping: set[str]) -> None:
        """A study begins, or continues after ``trials``. Each value of ``shaping`` settings needs its own program."""

    def batch(self, numbers: list[int], shared: dict[str, Any]) -> None:
        """These trials train together, with the settings ``shared`` in common."""

    def advanced(self, share: float) -> None:
        """The share of the batch that is done, 0 … 1."""

    def finished(self, trial: Record, best: Record | None, seconds_left: float) -> None:
        """A trial is over; ``best`` is the best so far."""

    def final_round(self, trial: Record, kind: str, seeds: int) -> None:
        """A trial is trained again on other ``seeds``, as a finalist (``kind`` is ``final``) or as the winner (``test``)."""

    def warned(self, message: str) -> None:
        """A warning; the study continues. By default it is a Python warning."""
        warnings.warn(message, stacklevel=2)

    def stopping(self) -> None:
        """The user asked to stop."""

    def stopped(self, message: str) -> None:
        """The study ends early."""

    def exiting(self, message: str) -> None:
        """The process ends at once, because a call that cannot be stopped is still running."""


class Lines(Reporter):
    """Also prints a line for each finished trial."""

    total, over = 0, 0

    def started(self, folder: Path, plan: StudyPlan, trials: list[Record], shaping: set[str]) -> None:
        self.total, self.over = plan.trials, len(trials)

    def finished(self, trial: Record, best: Record | None, seconds_left: float) -> None:
        self.over += 1
        self.print(self.line(trial, best, seconds_left))

    def final_round(self, trial: Record, kind: str, seeds: int) -> None:
        begin = (
            f"final round: {trial.name} on {seeds} other"
            if kind == "final"
            else f"test: {trial.name}, the winner, on {seeds} test"
        )
        self.print(f"{begin} seeds")

    def print(self, text: str) -> None:
        """Print one line."""
        print(text, file=sys.stdout and lasting(sys.stdout, self.warned), flush=True)

    def line(self, trial: Record, best: Record | None, seconds_left: float) -> str:
        """The trial, the best score so far, and the time left."""
        score = {"done": number(trial.score), "pruned": f"{number(trial.score)} pruned", "failed": f"failed: {trial.reason}"}
        best_score = "" if best is None else f" · best {number(best.score)} ({best.name.removeprefix('the ')})"
        left = f"{self.over} of {self.total} finished · {duration(seconds_left)} left"
        return f"{trial.name.removeprefix('the '):<10} {score[trial.state]}{best_score} · {left}"


def reporter_for(reporter: Reporter | None, progress: bool | None) -> Reporter:
    """``reporter`` if given. Otherwise it prints lines if ``progress`` is true or, if None, on a terminal and in a
    notebook. Raises ``ConfigError`` if ``progress`` is true and a reporter is given."""
    check_progress(progress, reporter)
    shown = in_notebook() or draws_in_place(sys.stdout) if progress is None else progress
    return reporter or (Lines() if shown else Reporter())


def number(score: float | None) -> str:
    """Format a score with four digits: it may be a return of thousands or a success rate."""
    return "–" if score is None else f"{score:,.0f}" if abs(score) >= 10_000 else f"{score:.4g}"
