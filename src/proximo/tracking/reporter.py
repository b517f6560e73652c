"""``Reporter``: receives the progress of a training, to show it to a person."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from proximo.config import Config


class Reporter:
    """Receives the events of a training, in the order of these methods. This class ignores them all; override what you need."""

    owns_process = False
    """Whether the process exists only for this training. If a compiled call does not return after the user interrupts, proximo then ends
    the process; otherwise it raises ``KeyboardInterrupt``."""

    def started(self, config: Config, run_dirs: list[Path], summary: dict[str, Any]) -> None:
        """A training starts. ``summary`` describes spaces, network and device in words."""

    def seeds_started(self, run_dirs: list[Path], steps: int) -> None:
        """These seeds start to train from step ``steps``: all seeds in one program, or one seed after the other."""

    def compiling(self) -> None:
        """A program is being compiled."""

    def compiled(self, how: str) -> None:
        """All programs are compiled. ``how`` describes in words how environments are stepped."""

    def advanced(self, steps: int, steps_per_second: float, recent_return: float | None) -> None:
        """Some updates are finished."""

    def evaluating(self) -> None:
        """An evaluation starts, which may take long."""

    def evaluated(self, steps: int, summaries: list[dict[str, Any]]) -> None:
        """An evaluation is finished; one summary for each seed."""

    def warned(self, message: str) -> None:
        """A problem that does not stop the training."""

    def stopping(self) -> None:
        """The user interrupted, and the current call is finished first."""

    def stopped(self, message: str) -> None:
        """The training stops early."""

    def exiting(self, message: str) -> None:
        """The process ends at once with ``message``, because a call that cannot be stopped is still running."""

    def finished(self, results: list[Any]) -> None:
        """The training is finished; one ``Result`` for each seed."""


class Warner(Reporter):
    """The default of ``train`` and ``resume``: problems become Python warnings."""

    def warned(self, message: str) -> None:
        warnings.warn(message, stacklevel=2)
