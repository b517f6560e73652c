"""Which trials of a batch go on, and what Optuna and the user are told of them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection
from typing import Any, Protocol

from optuna.trial import Trial

from proximo.tune.evaluated import Reached
from proximo.tune.record import Record, quiet, tell

OUT_OF_TIME = "time was up"


class Trainer(Protocol):
    """What trains a batch."""

    width: int

    @property
    def full_seconds(self) -> float:
        """Seconds that its whole width trains for."""
        ...


class Judging:
    """The judge of one batch of trials, by number, with their ``settings``.

    ``deadline`` tells when the search has to end; ``finished`` is told each trial that is over; ``width`` is the number of trials
    that the study trains together; a base that is not ``base_in_space`` is kept from the sampler."""

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
        self.seconds = dict.fromkeys(batch, 0.0)
        self.trainer: Trainer | None = None
        self._since = 0.0

    def begin(self, numbers: list[int], trainer: Trainer) -> None:
        """These are trained from now on, in this order."""
        self.numbers, self.live, self.trainer = numbers, set(numbers), trainer
        self._since = time.monotonic()

    def __call__(self, evaluation: int, now: dict[int, Reached]) -> Collection[int]:
        seconds, self._since = time.monotonic() - self._since, time.monotonic()
        late = time.monotonic() > self.deadline()
        going_on = []
        reached = {self.numbers[place]: result for place, result in now.items()}
        for number, result in reached.items():
            self.seconds[number] += seconds / len(reached)
            if not result.failure:
                with quiet():
                    self.batch[number].report(result.score, evaluation)
        # All are told before any is judged: halving compares them with each other.
        for number, result in reached.items():
            state = self._state(number, result, late)
            if state:
                reason = OUT_OF_TIME if state == "pruned" and late else ""
                self.finish(number, state, dataclasses.replace(result, failure=result.failure or reason))
            else:
                going_on.append(self.numbers.index(number))
        return going_on

    def _state(self, number: int, result: Reached, late: bool) -> str:
        """How the trial has ended, if it has."""
        if result.failure:
            return "failed"
        if result.final:
            return "done"
        # The base is what all is compared with.
        return "pruned" if number and (late or self.batch[number].should_prune()) else ""

    def finish(self, number: int, state: str, result: Reached) -> None:
        """Tell Optuna and the user."""
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
