"""Collects and learns on Gymnasium environments: alternately, or at the same time with ``learner_lag``."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool

from proximo.collect.devices import whole
from proximo.collect.episode_tally import Episode
from proximo.collect.gymnasium_collector import GymnasiumCollector
from proximo.collect.gymnasium_rollout import GymnasiumRollout
from proximo.collect.learning import without_running_return
from proximo.collect.ray_collector import RayCollector
from proximo.collect.rollout_in_progress import Timing
from proximo.errors import ProximoError, TrainingError
from proximo.ppo import LearnerState
from proximo.threads import in_thread
from proximo.types import GymnasiumCollectorState, TrainState, int_of_steps


class GymnasiumTrainer:
    """Trains on Gymnasium environments. With ``learner_lag``, the next rollout is collected during each update, with the policy from before
    the update."""

    def __init__(self, collector: GymnasiumCollector | RayCollector):
        self.config, self.collector = collector.config, collector
        self.last_rollout: GymnasiumRollout | None = None
        """The rollout of the last update, until the next update begins; None if that update failed."""
        self.is_learning = False
        """Whether an update is being computed."""
        self.bad_environment = ""
        """Which environment returned the NaN or infinity that ended the training, in words; empty if none did."""
        self.last_episodes: list[Episode] = []
        """The episodes that finished in ``last_rollout``."""
        self._ahead: tuple[GymnasiumRollout, dict[str, float], list[Episode]] | None = None
        """The rollout that was collected during the last update, the metrics of its episodes, and these episodes."""
        self._failure: Exception | None = None
        """The error that ended collecting. Each later update raises it."""

    def begin(self, state: TrainState) -> TrainState:
        """Train this state from now on, with new episodes: the running returns that scale rewards begin at 0. The learner is moved to the
        devices that it computes on."""
        self.collector.begin()
        self._ahead = self._failure = None
        self.bad_environment = ""
        learner, healthy = self.collector.programs.placed((without_running_return(state.learner), state.healthy))
        return TrainState(learner, state.collector, healthy)

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, float]]:
        """Collect and learn once. An update with NaN or infinity, and all later ones, leave the learner unchanged. Raises ``EnvError`` or
        ``EnvironmentFault`` if an environment failed in the rollout of this update."""
        if self._failure is not None:
            raise self._failure
        self.last_rollout = None
        started, timing, environments = time.perf_counter(), Timing(), self.collector.environments
        restarts, collector_state = environments.restarts, state.collector
        if self._ahead is None:
            collector_state = self._collect(state, collector_state, timing)
        assert self._ahead is not None
        (rollout, episodes, finished), self._ahead = self._ahead, None
        if self.config.ppo.learner_lag and not self._is_last(state):
            learning = in_thread(self._learn, state, rollout)
            later = (ProximoError, TrainingError) if self.collector.peers.can_rescue else ()
            with contextlib.suppress(*later):  # the next update raises it
                collector_state = self._collect(state, collector_state, timing)
            waiting = time.perf_counter()
            learner, healthy, metrics = learning.result()
        else:
            waiting = time.perf_counter()
            learner, healthy, metrics = self._learn(state, rollout)
        timing.update += time.perf_counter() - waiting
        self.last_rollout, self.last_episodes = rollout, finished
        shares = timing.shares(time.perf_counter() - started)
        restarted = {"rollout/restarts": float(environments.restarts - restarts)}
        return TrainState(learner, collector_state, healthy), {**metrics, **episodes, **shares, **restarted}

    def inspect(self, before: LearnerState, after: LearnerState) -> dict[str, Any] | None:
        """The quantities of the last update for histograms, T N ...; None if it failed. Call it before the next update, which overwrites
        the rollout buffer."""
        if self.last_rollout is None:
            return None
        programs = self.collector.programs
        learned = jax.device_get(whole(programs.inspect(0, before, after.policy, programs.joined(self.last_rollout))))
        ended = {
            "episode_returns": np.array([episode.episode_return for episode in self.last_episodes]),
            "episode_lengths": np.array([episode.length for episode in self.last_episodes], np.int64),
            "episode_ends": np.ones(len(self.last_episodes), bool),
        }
        return {**learned, **ended}

    def close(self) -> None:
        """End the environments and their processes."""
        self.last_rollout = None
        self.collector.environments.close()

    def _collect(self, state: TrainState, collector_state: GymnasiumCollectorState, timing: Timing) -> GymnasiumCollectorState:
        """Collect a rollout into ``_ahead``."""
        try:
            collector_state, rollout, metrics = self.collector.collect(state.learner.policy, collector_state, timing)
        except (ProximoError, TrainingError) as failure:
            self._failure = failure
            raise
        self._ahead = rollout, metrics, self.collector.episodes.finished
        return collector_state

    def _learn(self, state: TrainState, rollout: GymnasiumRollout) -> tuple[LearnerState, Bool[Array, ""], dict[str, float]]:
        self.is_learning = True
        try:
            programs = self.collector.programs
            learned = programs.learn(0, state.learner, state.healthy, programs.joined(rollout))
            learner, healthy, metrics = jax.block_until_ready(learned)
        finally:
            self.is_learning = False
        if not healthy and not self.bad_environment:
            self.bad_environment = rollout.bad_environment(self.collector.part.start)
        return learner, healthy, metrics.read()

    def _is_last(self, state: TrainState) -> bool:
        return int_of_steps(state.learner.steps) + self.config.batch_size >= self.config.total_updates * self.config.batch_size
