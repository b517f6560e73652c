"""What trials reach, how their programs are called, and when they are evaluated: the same for both drivers."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.drivers.learning import BAD_SOURCES
from proximo.run.interrupts import Interrupts

CALL_SECONDS = 1.0
GRACE_SECONDS = 3.0


@dataclass(frozen=True)
class Reached:
    """What a trial has come to at an evaluation: the mean return of each seed, or why it cannot go on."""

    returns: tuple[float, ...]
    failure: str = ""
    final: bool = False
    """It is trained to the end, with all seeds."""

    @property
    def score(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.returns)) if self.returns else math.nan


Judge = Callable[[int, dict[int, Reached]], Collection[int]]
"""(number of the evaluation, from 1 on; what each trial that is still trained has reached) -> which go on."""


class StoppedError(Exception):
    """The user has asked to stop; what was being trained is lost, and trained anew on a resume."""


class Watch:
    """How programs are called so that Ctrl-C is heard, and who is told how far they are."""

    def __init__(self, interrupts: Interrupts):
        self.interrupts = interrupts
        self.advanced: Callable[[float], None] = lambda share: None
        """Told how much of a batch is done; may raise to end it."""

    def call(self, function: Callable[..., Any], *arguments: Any, computes: Callable[[], bool] = lambda: True) -> Any:
        """``function(*arguments)``; raises ``StoppedError`` behind it where a stop was asked for."""
        result = self.interrupts.call(function, *arguments, grace=GRACE_SECONDS, computes=computes)
        if self.interrupts.requested is not None:
            raise StoppedError
        return result


def borders(config: Config, evaluations: int) -> list[tuple[int, int]]:
    """(number of the evaluation, updates behind which it comes), evenly spaced; fewer where there are fewer updates."""
    total = config.total_updates
    by_update = {max(1, round(total * i / evaluations)): i for i in range(1, evaluations + 1)}
    return [(i, update) for update, i in by_update.items()]


def reached(returns: list[float], final: bool) -> Reached:
    """An evaluation; returns that are no numbers are a failure."""
    if not np.isfinite(returns).all():
        return Reached((), "an evaluation gave NaN or infinity")
    return Reached(tuple(returns), final=final)


def bad_source(metrics: dict[str, np.ndarray], place: int) -> str:
    """Where the first NaN or infinity of a training came from; nothing, where all was finite."""
    bad = np.array([metrics[f"bad/{source}"][place] for source in BAD_SOURCES]) > 0
    return BAD_SOURCES[int(bad[:, int(bad.any(axis=0).argmax())].argmax())] if bad.any() else ""


class Pace:
    """Seconds that an update takes, the mean over all until now."""

    def __init__(self) -> None:
        self._seconds, self._updates = 0.0, 0

    def add(self, seconds: float, updates: int) -> None:
        """Some updates are done."""
        self._seconds, self._updates = self._seconds + seconds, self._updates + updates

    @property
    def seconds_per_update(self) -> float:
        """0 before the first one."""
        return self._seconds / self._updates if self._updates else 0.0


def updates_of_a_call(seconds_per_update: float) -> int:
    """As many as take about a second; one, before that is known."""
    return max(1, int(CALL_SECONDS / seconds_per_update)) if seconds_per_update else 1
