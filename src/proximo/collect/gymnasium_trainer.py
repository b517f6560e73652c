"""Collects and learns on Gymnasium environments: alternately, or at the same time with ``learner_lag``."""

import contextlib
import time
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool

from proximo.collect.devices import joined, placed, whole
from proximo.collect.episode_tally import Episode
from proximo.collect.gymnasium_collector import GymnasiumCollector, Timing
from proximo.collect.learning import without_running_return
from proximo.errors import ProximoError, TrainingError
from proximo.ppo import LearnerState
from proximo.threads import in_thread
from proximo.types import GymnasiumCollectorState, Rollout, TrainState, int_of_steps


class GymnasiumTrainer:
    """Trains on Gymnasium environments. With ``learner_lag``, the next rollout is collected during each
    update, with the policy from before the update."""

    def __init__(self, collector: GymnasiumCollector):
        self.config, self.collector = collector.config, collector
        self.last_rollout: Rollout | None = None
        """The rollout of the last update, until the next update begins; None if that update failed."""
        self.is_learning = False
        self.bad_environment = ""
        """Which environment returned the first NaN or infinity, in words."""
        self.last_episodes: list[Episode] = []
        self._ahead: tuple[Rollout, dict[str, float], list[Episode]] | None = None
        """The rollout that was collected during the last update, its metrics, and its episodes."""
        self._failure: Exception | None = None
        """The error that ended collecting. Each later update raises it."""

    def begin(self, state: TrainState) -> TrainState:
        """Train this state from now on, with new episodes: the running returns that scale rewards begin at
        0. The learner is moved to the devices that it computes on."""
        self.collector.begin()
        self._ahead = self._failure = None
        self.bad_environment = ""
        learner, healthy = placed((without_running_return(state.learner), state.healthy), self.collector.programs.mesh)
        return TrainState(learner, state.collector, healthy)

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, float]]:
        """Collect and learn once. An update with NaN or infinity, and all later ones, leave the learner unchanged.
        Raises ``EnvError`` or ``EnvironmentFault`` if an environment failed in the rollout of this update."""
        if self._failure is not None:
            raise self._failure
        self.last_rollout = None
        started, timing, environments = time.perf_counter(), Timing(), self.collector.environments
        restarts, collector_state = environments.restarts, state.collector
        if self._ahead is None:
            collector_state = self._collect(state, collector_state, timing)
        assert self._ahead is not None
        (rollout, episodes, finished), self._ahead = self._ahead, None
        learning = None
        end = self.config.total_updates * self.config.batch_size
        if self.config.ppo.learner_lag and int_of_steps(state.learner.steps) + self.config.batch_size < end:
            learning = in_thread(self._learn, state, rollout)
            later = (ProximoError, TrainingError) if self.collector.peers.can_rescue else ()
            with contextlib.suppress(*later):  # the next update raises it
                collector_state = self._collect(state, collector_state, timing)
        waiting = time.perf_counter()
        learner, healthy, metrics = self._learn(state, rollout) if learning is None else learning.result()
        timing.update += time.perf_counter() - waiting
        self.last_rollout, self.last_episodes = rollout, finished
        shares = timing.shares(time.perf_counter() - started)
        restarted = {"rollout/restarts": float(environments.restarts - restarts)}
        return TrainState(learner, collector_state, healthy), {**metrics, **episodes, **shares, **restarted}

    def inspect(self, before: LearnerState, after: LearnerState) -> dict[str, Any] | None:
        """The quantities of the last update for histograms, T N ...; None if it failed."""
        if self.last_rollout is None:
            return None
        programs = self.collector.programs
        learned = whole(programs.inspect(0, before, after.policy, joined(self.last_rollout, programs.mesh)))
        return {
            **jax.device_get(learned),
            "episode_returns": np.array([episode.episode_return for episode in self.last_episodes]),
            "episode_lengths": np.array([episode.length for episode in self.last_episodes], np.int64),
            "episode_ends": np.ones(len(self.last_episodes), bool),
        }

    def close(self) -> None:
        self.last_rollout = None
        self.collector.environments.close()

    def _collect(self, state: TrainState, collector_state: GymnasiumCollectorState, timing: Timing) -> GymnasiumCollectorState:
        try:
            collector_state, rollout, metrics = self.collector.collect(state.learner.policy, collector_state, timing)
        except (ProximoError, TrainingError) as failure:
            self._failure = failure
            raise
        self._ahead = rollout, metrics, self.collector.episodes.finished
        return collector_state

    def _learn(self, state: TrainState, rollout: Rollout) -> tuple[LearnerState, Bool[Array, ""], dict[str, float]]:
        self.is_learning = True
        try:
            programs = self.collector.programs
            learned = programs.learn(0, state.learner, state.healthy, joined(rollout, programs.mesh))
            learner, healthy, metrics = jax.block_until_ready(learned)
        finally:
            self.is_learning = False
        if not healthy and not self.bad_environment:
            self.bad_environment = bad_environment(rollout, self.collector.part.start)
        return learner, healthy, dict(zip(metrics.names, np.asarray(metrics.values).tolist(), strict=True))


def bad_environment(rollout: Rollout, first_env: int) -> str:
    """Which environment returned NaN or infinity, and in which step, in words; empty if none did.
    ``first_env`` is the number of the first environment of ``rollout``."""
    observations = zip(*map(jax.tree.leaves, (rollout.observation, rollout.last_observation)), strict=True)
    checked: list[tuple[str, Any, Any]] = [("observation", np.concatenate([x, last[None]]), True) for x, last in observations]
    checked += [("reward", rollout.reward, rollout.valid)]
    checked += [("final observation", x, rollout.truncated) for x in jax.tree.leaves(rollout.bootstrap_value)]
    found: list[tuple[int, int, str]] = []
    for name, array, mask in checked:
        if np.issubdtype(array.dtype, np.floating):
            bad = ~np.isfinite(array).all(axis=tuple(range(2, array.ndim))) & mask
            found += [(t, i, name) for t, i in np.argwhere(bad)[:1].tolist()]
    if not found:
        return ""
    t, i, name = min(found, key=lambda place: place[0])  # the policy may observe a reward in the step after
    return f"environment {first_env + i} gave it as {name} in step {t} of the rollout"
