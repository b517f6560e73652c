"""What a study tells while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proximo.tune.plan import StudyPlan
    from proximo.tune.record import Record


class Reporter:
    """Told what happens, in this order; every method may be overridden, and this one stays silent."""

    def started(self, folder: Path, plan: StudyPlan, trials: list[Record], shaping: set[str]) -> None:
        """A study begins, or goes on after ``trials``; those settings are ``shaping`` which each need a program of their own."""

    def batch(self, numbers: list[int], shared: dict[str, Any]) -> None:
        """These trials train together; ``shared`` are the settings that they have in common."""

    def advanced(self, share: float) -> None:
        """So much of the batch is done, 0 … 1."""

    def finished(self, trial: Record, best: Record | None, seconds_left: float | None) -> None:
        """A trial is over; ``best`` is the best so far."""

    def final_round(self, trial: Record, seeds: int) -> None:
        """A finalist is trained anew on other seeds."""

    def test(self, trial: Record, seeds: int) -> None:
        """The winner is trained again, on ``seeds`` test seeds."""

    def warned(self, message: str) -> None:
        """Something is odd but the study goes on."""

    def stopping(self) -> None:
        """The user has asked to stop."""

    def stopped(self, message: str) -> None:
        """The study ends before its time."""

    def left(self, message: str) -> None:
        """The process ends at once, with ``message``: a call that cannot be ended is still running in it."""
