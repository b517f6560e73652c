"""``Reporter``: receives the progress of a training or of a study, to show it to a person."""

import warnings
from pathlib import Path
from typing import Any

from proximo.config import Config


class Reporter:
    """Receives the events of a training, or of a study of ``proximo.tune``.

        class PrintEvaluations(proximo.tracking.reporter.Reporter):
            def evaluated(self, steps, summaries):
                print(steps, [summary["return_mean"] for summary in summaries])

        proximo.train("CartPole-v1", reporter=PrintEvaluations())

    This class ignores all events, except that a problem becomes a Python warning. Override the methods that you need.
    """

    owns_process = False
    """Whether the process exists only for this training. If a compiled call does not return after the user interrupts,
    proximo then ends the process; otherwise it raises ``KeyboardInterrupt``."""

    def started(self, config: Config, run_dirs: list[Path], summary: dict[str, str]) -> None:
        """A training starts.

        Args:
            config: the settings.
            run_dirs: the run directory of each seed; empty in ``PPO.learn``, which writes no file.
            summary: what is trained, and on what, in words: its environment, settings, network, batch and device.
        """

    def seeds_started(self, run_dirs: list[Path], steps: int) -> None:
        """Seeds start to train, from step ``steps``: all seeds of one program, or the next one of several."""

    def compiling(self) -> None:
        """A program is being compiled."""

    def compiled(self, how: str) -> None:
        """All programs are compiled. ``how`` describes how environments are stepped."""

    def advanced(self, steps: int, steps_per_second: float, recent_return: float | None) -> None:
        """Some updates are finished.

        Args:
            steps: environment steps so far.
            steps_per_second: environment steps per second.
            recent_return: mean return of about the last hundred episodes; None before the first.
        """

    def evaluating(self) -> None:
        """An evaluation starts, which may take long."""

    def evaluated(self, steps: int, summaries: list[dict[str, Any]]) -> None:
        """An evaluation is finished.

        Args:
            steps: environment steps so far.
            summaries: for each seed that still trains, ``return_mean`` and the other entries of ``eval --json``.
        """

    def warned(self, message: str) -> None:
        """There is a problem, which ``message`` describes, but the training continues. Other threads may call this, too."""
        warnings.warn(message, stacklevel=2)

    def stopping(self) -> None:
        """The user interrupted the training. It stops after the current call of the compiled program."""

    def stopped(self, message: str) -> None:
        """The training stops early, or one of its seeds does. ``message`` says where, and how to continue."""

    def exiting(self, message: str) -> None:
        """The process ends at once, because a call that cannot be stopped still runs. ``message`` says what was saved, and how
        to continue."""

    def finished(self, results: list[Any]) -> None:
        """The training is finished, with one ``Result`` for each seed."""

    def study_started(self, folder: Path, plan: Any, trials: list[Any], shaping: set[str]) -> None:
        """A study starts, or continues.

        Args:
            folder: its folder.
            plan: what is searched, and how.
            trials: the trials that are finished already.
            shaping: the searched settings whose values each need their own program.
        """

    def trials_started(self, what: str) -> None:
        """Some trials start to train together, or one of them trains again on other seeds. ``what`` has their numbers and
        common settings, in words."""

    def trials_advanced(self, share: float) -> None:
        """Some updates of these trials are finished; ``share`` of their training is done, 0 … 1."""

    def trial_finished(self, trial: Any, best: Any, seconds_left: float) -> None:
        """A trial is over.

        Args:
            trial: its settings, scores and state.
            best: the best trial so far; None if no trial was trained to its end.
            seconds_left: estimated seconds until the end of the study.
        """
