"""Collects and learns on Gymnasium environments: one after the other, or with ``learner_lag`` at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from proximo.collect.gymnasium_collector import GymnasiumCollector
from proximo.collect.gymnasium_programs import GymnasiumPrograms
from proximo.collect.gymnasium_rollout import GymnasiumRollout
from proximo.collect.learning import without_running_return
from proximo.collect.rollout_in_progress import Timing
from proximo.errors import ProximoError, TrainingError
from proximo.ppo import LearnerState
from proximo.types import TrainState


class Collected(NamedTuple):
    """A rollout, and the metrics of its episodes."""

    rollout: GymnasiumRollout
    metrics: dict[str, float]


class Learned(NamedTuple):
    """The result of one update."""

    learner: LearnerState
    healthy: jax.Array
    metrics: dict[str, float]


class GymnasiumLearner:
    """Learns from rollouts."""

    def __init__(self, programs: GymnasiumPrograms):
        self.programs = programs
        self.is_computing = False
        """Whether an update is being computed."""
        self.bad_environment = ""
        """Which environment returned the NaN or infinity that ended the training, in words; empty if none did."""

    def learn(self, learner: LearnerState, healthy: jax.Array, rollout: GymnasiumRollout) -> Learned:
        """One update."""
        self.is_computing = True
        try:
            learner, healthy, metrics = jax.block_until_ready(self.programs.learn(0, learner, healthy, rollout))
        finally:
            self.is_computing = False
        metrics = {name: float(x) for name, x in jax.device_get(metrics).items()}
        if not healthy and not self.bad_environment:
            self.bad_environment = rollout.bad_environment()
        return Learned(learner, healthy, metrics)


class GymnasiumTrainer:
    """Trains on Gymnasium environments. With ``learner_lag`` the next rollout is collected, by the policy before the update,
    while an update learns."""

    def __init__(self, collector: GymnasiumCollector):
        self.config, self.collector = collector.config, collector
        self.learner = GymnasiumLearner(collector.programs)
        self.last_rollout: GymnasiumRollout | None = None
        """The rollout of the last update, until the next update begins; None if that update failed."""
        self._ahead: Collected | None = None
        """What was collected during the last update."""
        self._failure: Exception | None = None
        """The error that ended collecting during the last update. The next update raises it."""

    def begin(self, state: TrainState) -> TrainState:
        """Train this state from now on, with new episodes: the running returns that scale rewards begin at 0."""
        self.collector.begin()
        self._ahead = self._failure = None
        self.learner.bad_environment = ""
        return TrainState(without_running_return(state.learner), state.collector, state.healthy)

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, float]]:
        """Collect and learn once. From the first NaN or infinity on the learner stays as it was before it.

        Raises:
            EnvError: an environment failed in the rollout of this update.
        """
        if self._failure is not None:
            raise self._failure
        self.last_rollout = None
        started, timing, environments = time.perf_counter(), Timing(), self.collector.environments
        restarts = environments.restarts
        collector_state = state.collector
        if self._ahead is None:
            collector_state, self._ahead = self._collect(state, collector_state, timing)
        (rollout, episodes), self._ahead = self._ahead, None
        if self.config.ppo.learner_lag and not self._is_last(state):
            learning = _Thread(lambda: self.learner.learn(state.learner, state.healthy, rollout))
            try:
                collector_state, self._ahead = self._collect(state, collector_state, timing)
            except (ProximoError, TrainingError) as failure:
                self._failure = failure
            waiting = time.perf_counter()
            learned = learning.result()
        else:
            waiting = time.perf_counter()
            learned = self.learner.learn(state.learner, state.healthy, rollout)
        timing.update += time.perf_counter() - waiting
        self.last_rollout = rollout
        shares = timing.shares(time.perf_counter() - started)
        lost = {"rollout/restarts": float(environments.restarts - restarts)}
        return TrainState(learned.learner, collector_state, learned.healthy), {**learned.metrics, **episodes, **shares, **lost}

    def inspect(self, before: LearnerState, after: LearnerState) -> dict[str, Any] | None:
        """The quantities of the last update for histograms, T N ...; None if it failed. Before the next update, which fills its
        rollout buffer again."""
        if self.last_rollout is None:
            return None
        return jax.device_get(self.collector.programs.inspect(0, before, after.policy, self.last_rollout))

    def close(self) -> None:
        """End the environments and their processes."""
        self.last_rollout = None
        self.collector.environments.close()

    def _collect(self, state: TrainState, collector_state: Any, timing: Timing) -> tuple[Any, Collected]:
        collector_state, rollout, metrics = self.collector.collect(state.learner.policy, collector_state, timing)
        return collector_state, Collected(rollout, metrics)

    def _is_last(self, state: TrainState) -> bool:
        low, high = np.asarray(state.learner.steps)
        return (int(high) << 32) + int(low) + self.config.batch_size >= self.config.total_updates * self.config.batch_size


class _Thread:
    """Runs a function in a separate thread."""

    def __init__(self, function: Callable[[], Any]):
        self._result: Any = None
        self._error: BaseException | None = None

        def work() -> None:
            try:
                self._result = function()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def result(self) -> Any:
        """Wait for the function, and return its result or raise its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result
