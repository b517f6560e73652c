"""What trains: the only interface between the training above it and the environments below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from proximo.config import Config
from proximo.envs.protocol import Environment
from proximo.evaluation.episodes import Episodes
from proximo.networks import ActorCritic
from proximo.rendering.player import Player
from proximo.tracking.histograms import Histogram
from proximo.types import TrainState


class Backend(Protocol):
    """Trains the policies of one setting on one kind of environments. ``make_backend`` makes the right one.

    A training calls ``start`` or ``join`` for a state, then ``compile`` once, then ``advance`` until it ends, and ``close``. The
    state belongs to the training. It has a leading axis of seeds if the backend is ``stacked``; ``seed_state`` takes one seed out
    of it.
    """

    config: Config
    capacity: int
    """The most updates of one call of ``advance``."""
    compile_seconds: float
    """Seconds that ``start`` and ``compile`` have taken so far."""

    @property
    def env(self) -> Environment:
        """The environment, for its spaces."""
        ...

    @property
    def stacked(self) -> bool:
        """Whether several seeds are trained together, in one state with a leading axis. Otherwise they are trained one after the
        other."""
        ...

    @property
    def donates(self) -> bool:
        """Whether ``advance`` uses up the state that it is given: a caller that still needs it makes a copy."""
        ...

    @property
    def warn(self) -> Callable[[str], None]:
        """Receives warnings of lost workers. The training sets it."""
        ...

    @warn.setter
    def warn(self, warn: Callable[[str], None]) -> None: ...

    def template(self) -> TrainState:
        """Shapes and types of the state of one seed, without a leading axis. A checkpoint is loaded into it."""
        ...

    def start(self, seeds: list[int]) -> TrainState:
        """The state before the first step, of each seed. A backend that is not stacked takes one seed."""
        ...

    def join(self, states: list[TrainState]) -> TrainState:
        """The restored states of all seeds as one state of this backend."""
        ...

    def seed_state(self, state: TrainState, index: int) -> TrainState:
        """The state of one seed, as a checkpoint has it."""
        ...

    def with_new_episodes(self, state: TrainState) -> TrainState:
        """The state of one seed after a change of the environment: the same learner, new episodes, seeded by the state's key."""
        ...

    def compile(self, state: TrainState) -> None:
        """Compile what ``advance`` needs for a state of this shape, and open the environments. Functions that were compiled
        before are reused."""
        ...

    def advance(self, state: TrainState, num_updates: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        """Collect and learn.

        Args:
            state: the state, of the shape that was given to ``compile``.
            num_updates: 1 … ``capacity``.

        Returns:
            The state after the updates, and metrics of shape (seeds, updates). There are fewer updates than asked for if an
            environment failed; the next call raises its error.

        Raises:
            EnvError: an environment failed in the first update.
        """
        ...

    def inspect_before(self, state: TrainState) -> Any:
        """Prepare the inspection of the next update. Returns what ``inspect_after`` needs; the training stays the same bit for
        bit."""
        ...

    def inspect_after(self, state: TrainState, seen: Any) -> list[dict[str, Histogram]]:
        """The histograms of the single update that led to ``state``, for each seed. ``seen`` is what ``inspect_before`` returned.
        The list is empty if the update was cut short."""
        ...

    def evaluate(self, policy: ActorCritic, seed: int, stream: int) -> Episodes:
        """Play ``eval_episodes`` episodes with the most probable actions, on environment seeds that follow from ``seed`` and
        ``stream`` alone. Only for settings with ``eval_episodes``."""
        ...

    def player(self, seed: int, stream: int) -> Player:
        """One environment to draw: its episodes are the first ones of an evaluation with ``seed`` in ``stream``. The caller
        closes it.

        Raises:
            EnvError: the environment cannot be drawn.
        """
        ...

    def is_computing(self) -> bool:
        """Whether this process computes now. False while it may wait for environments, which need no CPU time of this process."""
        ...

    def describe(self) -> str:
        """How environments are stepped, in words; empty if there is only one way. Called after ``compile``."""
        ...

    def fault(self) -> str:
        """Which environment returned NaN or infinity, in words; empty if that is unknown."""
        ...

    def close(self) -> None:
        """End the environments and their processes."""
        ...
