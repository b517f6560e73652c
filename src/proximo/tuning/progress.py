"""Reports the progress of a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proximo.tuning.plan import StudyPlan
    from proximo.tuning.record import Record


class Reporter:
    """Receives the events of a study, in the order of these methods. This class ignores them all; override what you need."""

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
