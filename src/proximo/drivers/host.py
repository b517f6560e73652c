"""The host driver: any Gymnasium environment, stepped on the host into the rows that the learner reads."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.config import Config
from proximo.drivers.collection import Carried, Collected, Collection, bad_environment
from proximo.drivers.episodes import EpisodeLog
from proximo.drivers.host_programs import HostPrograms, PackedPolicy
from proximo.drivers.learning import fresh_policy, without_running_return
from proximo.envs.host.environment import HostEnvironment, PoolOptions
from proximo.envs.host.pool import Pool
from proximo.envs.host.waiting import reports_waiting
from proximo.errors import ProximoError, TrainingError
from proximo.networks import ActorCritic
from proximo.ppo import LearnerState, make_hyperparameters
from proximo.runtime import cores
from proximo.types import HostCollectorState, Hyperparameters, TrainState
from proximo.users_code import users_code


def pool_options(config: Config, notify: Callable[[str], None] = lambda message: None) -> PoolOptions:
    """How ``config`` wants environments to be stepped."""
    env = config.env
    return PoolOptions(
        num_workers=env.num_workers,
        plain=env.num_workers >= 0 or env.overlap or env.stagger_steps > 0,
        num_groups=2 if env.overlap else 1,
        stagger_steps=env.stagger_steps,
        step_timeout=env.step_timeout,
        reset_timeout=env.reset_timeout,
        max_restarts=env.max_restarts,
        cores=cores(),
        notify=notify,
    )


class HostDriver:
    """Trains on environments of the host. ``update`` steps them; its environments begin anew with the state that follows
    ``begin``, with seeds from that state's key, so that two runs from one state are equal."""

    def __init__(self, config: Config, env: HostEnvironment, programs: HostPrograms | None = None):
        self.config, self.env = config, env
        self.programs = programs or HostPrograms(config, env)
        self.notify: Callable[[str], None] = lambda message: None
        self.pool: Pool | None = None
        self.bad_environment = ""
        """Where the NaN or infinity came from that has ended the training, if an environment gave it."""
        self.episodes = EpisodeLog(config.env.num_envs)
        self.seconds: dict[str, float] = dict.fromkeys(("environment", "policy", "update"), 0.0)
        self.learning = False
        self._fresh = True
        self._place = 0
        self._carried = Carried([])
        self._ahead: Collected | None = None
        self.keeps_rollout = False
        """Whether the rollout of the next update is kept for ``look``."""
        self._kept: tuple[Any, Collected] | None = None
        self._fault: Exception | None = None
        """What has ended collecting ahead, told when the update beside it has been handed over."""

    def init_policy(self, key: Key[Array, ""]) -> ActorCritic:
        """A fresh policy for the environment's spaces. Raises ``EnvError`` where a space is not supported."""
        return fresh_policy(key, self.env, self.config)

    def init(self, key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> TrainState:
        """The state before the first step."""
        learner, key_collector = self.programs.fresh(key, hyperparameters or make_hyperparameters(self.config.ppo))
        return TrainState(learner, HostCollectorState(key_collector), jnp.array(True))

    def with_new_episodes(self, learner: LearnerState, key: Key[Array, ""]) -> TrainState:
        """The state of a trained ``learner`` with new episodes, whose seeds follow from ``key``."""
        return TrainState(without_running_return(learner), HostCollectorState(key), jnp.array(True))

    def begin(self) -> None:
        """What is updated next is no state of this driver's: environments and memory begin anew with it."""
        self._fresh, self._ahead, self._fault, self.bad_environment = True, None, None, ""

    def close(self) -> None:
        """End the environments and their processes."""
        pool, self.pool = self.pool, None
        if pool is not None:
            pool.close()

    def open(self) -> Pool:
        """The environments, made when they are first needed."""
        if self.pool is None:
            options = pool_options(self.config, lambda message: self.notify(message))
            slabs = 1 + self.config.ppo.learner_lag
            with users_code(f"Making {self.env.id} to train on"):
                self.pool = self.env.open(self.config.env.num_envs, self.config.ppo.num_steps, options, slabs)
        return self.pool

    def prepare(self, state: TrainState) -> None:
        """Make the environments and compile everything."""
        pool, policy = self.open(), state.learner.policy
        packed, noise, _ = self.programs.begin(0, policy, state.collector.key)
        whole = self._collection(0, packed, noise, self._nothing_carried(pool, policy)).compile()
        self.programs.learn.program(0, state.learner, state.healthy, packed, whole.rows(), whole.memory, whole.last_memory)

    def _nothing_carried(self, pool: Pool, policy: ActorCritic) -> Carried:
        memory = [policy.init_memory(len(columns)) for columns in pool.groups]
        return Carried.empty(memory, pool.slabs[0], self.programs)

    def _collection(self, place: int, policy: PackedPolicy, noise: Any, carried: Carried) -> Collection:
        return Collection(self.open(), place, self.programs, policy, noise, carried, self.seconds)

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, float]]:
        """Collect and learn once. With ``learner_lag`` the rollout was collected during the update before, and the next one is
        collected, by the policy of ``state``, while this one is learned."""
        if self._fault is not None:
            raise self._fault
        started = time.perf_counter()
        before = dict(self.seconds)
        restarts = self.pool.restarts if self.pool is not None else 0
        if self._ahead is None:
            state, self._ahead = self._collect(state)
        rollout, self._ahead = self._ahead, None
        collector = state.collector
        if self.config.ppo.learner_lag and not self._is_last(state):
            learning = _Background(lambda: self._learn(state, rollout))
            try:
                collected, self._ahead = self._collect(state)
                collector = collected.collector
            except (ProximoError, TrainingError) as fault:
                self._fault = fault
            waiting = time.perf_counter()
            learner, healthy, metrics = learning.result()
        else:
            waiting = time.perf_counter()
            learner, healthy, metrics = self._learn(state, rollout)
        self._kept = (state.learner, rollout) if self.keeps_rollout else None
        self.seconds["update"] += time.perf_counter() - waiting
        spent = {name: self.seconds[name] - before[name] for name in before}
        timing = self._timing(spent, time.perf_counter() - started, restarts)
        return TrainState(learner, collector, healthy), {**metrics, **rollout.metrics, **timing}

    def look(self, policy: ActorCritic) -> dict[str, Any] | None:
        """What there is to be seen in the rollout of the last update, and in the ``policy`` that has learned from it; None where
        it was not kept. Before the next update, which collects into the same rows."""
        kept, self._kept = self._kept, None
        if kept is None:
            return None
        learner, rollout = kept
        seen = self.programs.look(0, learner, policy, rollout.policy, rollout.rows(), rollout.memory, rollout.last_memory)
        return jax.device_get(seen)

    def _is_last(self, state: TrainState) -> bool:
        low, high = np.asarray(state.learner.steps)
        return (int(high) << 32) + int(low) + self.config.batch_size >= self.config.total_updates * self.config.batch_size

    def _timing(self, spent: dict[str, float], whole: float, restarts: int) -> dict[str, float]:
        assert self.pool is not None
        shares = {f"time/share_{name}": seconds / whole for name, seconds in spent.items()}
        rest = max(0.0, 1.0 - sum(shares.values()))
        return {**shares, "time/share_rest": rest, "rollout/restarts": float(self.pool.restarts - restarts)}

    def _learn(self, state: TrainState, rollout: Collected) -> tuple[Any, Any, dict[str, float]]:
        arguments = (state.learner, state.healthy, rollout.policy, rollout.rows(), rollout.memory, rollout.last_memory)
        self.learning = True
        try:
            learner, healthy, metrics = jax.block_until_ready(self.programs.learn(0, *arguments))
        finally:
            self.learning = False
        metrics = {name: float(x) for name, x in jax.device_get(metrics).items()}
        if not healthy and not self.bad_environment:
            self.bad_environment = bad_environment(rollout)
        return learner, healthy, metrics

    def _start_over(self, pool: Pool, state: TrainState) -> TrainState:
        """Reset all environments, the memory, the episode statistics, and the returns that rewards are scaled by."""
        env = self.config.env
        seed = np.random.SeedSequence(np.asarray(jax.random.key_data(state.collector.key)).tolist()).generate_state(1)
        self._place = 0
        with reports_waiting(self.notify, env.num_envs, env.id, env.reset_timeout if pool.num_workers else 0.0):
            pool.reset(0, int(seed[0]))
        self._carried = self._nothing_carried(pool, state.learner.policy)
        self.episodes.begin(bool(self.config.env.stagger_steps))
        self._fresh = False
        return dataclasses.replace(state, learner=without_running_return(state.learner))

    def _collect(self, state: TrainState) -> tuple[TrainState, Collected]:
        """``num_steps`` steps of all environments, by the policy of ``state``."""
        pool = self.open()
        if self._fresh:
            state = self._start_over(pool, state)
        else:
            before, self._place = pool.slabs[self._place], (self._place + 1) % len(pool.slabs)
            pool.slabs[self._place].begin_after(before)
        pool.slabs[self._place].clear()
        packed, noise, key = self.programs.begin(0, state.learner.policy, state.collector.key)
        collection = self._collection(self._place, packed, noise, self._carried)
        collected = collection.run()
        self._carried = collection.carried
        collected.metrics = self.episodes.add(collected.slab)
        return dataclasses.replace(state, collector=HostCollectorState(key)), collected


class _Background:
    """A function in a thread of its own."""

    def __init__(self, function: Callable[[], Any]):
        self._outcome: dict[str, Any] = {}

        def work() -> None:
            try:
                self._outcome["result"] = function()
            except BaseException as error:
                self._outcome["error"] = error

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def result(self) -> Any:
        """Wait for it; raises what it raised."""
        self._thread.join()
        if "error" in self._outcome:
            raise self._outcome["error"]
        return self._outcome["result"]
