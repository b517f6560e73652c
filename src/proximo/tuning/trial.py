"""The results of trials, the updates at which they are evaluated, and calls that Ctrl-C can interrupt."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.training.interrupts import Interrupts

GRACE_SECONDS = 3.0


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial at an evaluation: the mean return of each seed, or why the trial cannot continue."""

    returns: tuple[float, ...]
    failure: str = ""
    final: bool = False
    """All seeds are trained to the end."""

    @classmethod
    def of(cls, returns: list[float], final: bool) -> TrialResult:
        """The result of an evaluation. NaN and infinity are a failure."""
        if not np.isfinite(returns).all():
            return cls((), "an evaluation gave NaN or infinity")
        return cls(tuple(returns), final=final)

    @property
    def score(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.returns)) if self.returns else math.nan


Select = Callable[[int, dict[int, TrialResult]], Collection[int]]
"""``select(evaluation, results)`` returns the trials that continue, from the number of the evaluation (1, 2, …) and the results
by trial."""


class StoppedError(Exception):
    """The user asked to stop. The trials that were being trained are lost; a resume trains them again."""


class Watch:
    """Calls backends so that Ctrl-C can interrupt them, and reports how much of a batch is done."""

    def __init__(self, interrupts: Interrupts):
        self.interrupts = interrupts
        self.advanced: Callable[[float], None] = lambda share: None
        """Receives the share of a batch that is done. It may raise to end the batch."""

    def call(self, function: Callable[..., Any], *arguments: Any, is_computing: Callable[[], bool] = lambda: True) -> Any:
        """Return ``function(*arguments)``. Raises ``StoppedError`` after the call if the user asked to stop."""
        result = self.interrupts.call(function, *arguments, grace=GRACE_SECONDS, is_computing=is_computing)
        if self.interrupts.requested is not None:
            raise StoppedError
        return result


def boundaries(config: Config, evaluations: int) -> list[tuple[int, int]]:
    """Evenly spaced evaluations as pairs: number of the evaluation, updates before it. There are at most as many as updates."""
    total = config.total_updates
    by_update = {max(1, round(total * i / evaluations)): i for i in range(1, evaluations + 1)}
    return [(i, update) for update, i in by_update.items()]
