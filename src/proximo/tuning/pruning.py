"""Selects the trials of a batch that continue, and reports the others to Optuna and the user."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from optuna.trial import Trial

from proximo.tuning.record import Record, quiet, tell
from proximo.tuning.trial import TrialResult

if TYPE_CHECKING:
    from proximo.tuning.batch import Batch

OUT_OF_TIME = "time was up"


class TrialSelection:
    """Selects the trials of one ``batch`` that continue (see ``Select``), and passes each one that is over to ``finished``.

    ``deadline`` returns the time at which the search has to end. ``width`` is the number of trials that the study trains together. The
    sampler does not see the base unless ``base_in_space``.
    """

    def __init__(
        self,
        batch: dict[int, Trial],
        settings: dict[int, dict[str, Any]],
        *,
        deadline: Callable[[], float],
        finished: Callable[[Record], None],
        width: int,
        base_in_space: bool,
    ):
        self.batch, self.settings, self.deadline, self.finished = batch, settings, deadline, finished
        self.width, self.base_in_space = width, base_in_space
        self.numbers: list[int] = []
        self.live: set[int] = set()
        self.last = dict.fromkeys(batch, TrialResult(()))
        """The result of each trial at its last evaluation."""
        self.seconds = dict.fromkeys(batch, 0.0)
        self.trainer: Batch | None = None
        self._since = 0.0

    def begin(self, numbers: list[int], trainer: Batch) -> None:
        """``trainer`` trains these trials from now on, in this order."""
        self.numbers, self.live, self.trainer = numbers, set(numbers), trainer
        self._since = time.monotonic()

    def __call__(self, evaluation: int, results: dict[int, TrialResult]) -> Collection[int]:
        seconds, self._since = time.monotonic() - self._since, time.monotonic()
        late = time.monotonic() > self.deadline()
        continuing = []
        by_number = {self.numbers[index]: result for index, result in results.items()}
        self.last.update(by_number)
        for number, result in by_number.items():
            self.seconds[number] += seconds / len(by_number)
            if not result.failure:
                with quiet():
                    self.batch[number].report(result.score, evaluation)
        # All are reported before any is pruned, because halving compares them with each other.
        for number, result in by_number.items():
            state = self._state(number, result, late)
            if state:
                reason = OUT_OF_TIME if state == "pruned" and late else ""
                self.finish(number, state, dataclasses.replace(result, failure=result.failure or reason))
            else:
                continuing.append(self.numbers.index(number))
        return continuing

    def _state(self, number: int, result: TrialResult, late: bool) -> str:
        """How the trial has ended, if it has."""
        if result.failure:
            return "failed"
        if result.final:
            return "done"
        # The base is never pruned, because all trials are compared with it.
        return "pruned" if number and (late or self.batch[number].should_prune()) else ""

    def finish(self, number: int, state: str, result: TrialResult) -> None:
        """Report a trial that is over to Optuna and the user."""
        self.live.discard(number)
        record = Record(
            number,
            state,
            self.settings[number],
            score=result.score if result.returns else None,
            seed_scores=list(result.returns),
            seconds=self.seconds[number],
            full_seconds=self.trainer.full_seconds * self.width / self.trainer.width if self.trainer else 0.0,
            reason=result.failure,
        )
        tell(self.batch[number], record, in_space=number > 0 or self.base_in_space)
        self.finished(record)
