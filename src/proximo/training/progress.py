"""How far a training is: the state that can be saved, and the steps and seconds of this session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from proximo.types import TrainState


class Snapshot(NamedTuple):
    """A training state between two updates."""

    state: TrainState
    update: int
    """Updates that led to the state."""
    step: int
    """Environment steps of each seed that led to the state."""


@dataclass
class Progress:
    """Environment steps of each seed in this session, and the seconds of its updates."""

    steps: int = 0
    seconds: float = 0.0

    def add(self, steps: int, seconds: float) -> None:
        """Count the updates of a call."""
        self.steps, self.seconds = self.steps + steps, self.seconds + seconds

    @property
    def steps_per_second(self) -> float:
        """Steps of one seed in a second; 0 before the first update."""
        return self.steps / self.seconds if self.seconds else 0.0

    def metrics(self) -> dict[str, float]:
        """The ``time/`` columns of a row."""
        return {"time/steps_per_second": self.steps_per_second, "time/seconds": self.seconds}
