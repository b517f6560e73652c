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

from proximo import ppo
from proximo.config import Config
from proximo.drivers.episodes import EpisodeLog
from proximo.drivers.fresh import fresh_policy
from proximo.drivers.host_programs import HostPrograms
from proximo.envs.host.environment import HostEnvironment, PoolOptions
from proximo.envs.host.pool import Pool
from proximo.envs.host.slab import Slab
from proximo.networks import ActorCritic
from proximo.types import HostCollectorState, Hyperparameters, Memory, TrainState


@dataclasses.dataclass
class Collected:
    """A rollout as it lies on the host."""

    slab: Slab
    packed: np.ndarray
    """T N ...: a step's action for the environment, the sampled one, log-probability, value."""
    bootstrap: np.ndarray
    """T N: value of the final observation where an episode was truncated; else 0."""
    memory: Memory
    last_memory: Memory
    vector: Array
    """The policy that acted."""
    metrics: dict[str, float]

    def rows(self) -> dict[str, Any]:
        """What the learner takes. A lost life is a termination to it; an environment that was lost in step t leaves an invalid
        row t, and its episode is truncated before it, bootstrapped by the value of the last observation."""
        slab = self.slab
        terminated, truncated, bootstrap = slab.terminated | slab.life_lost, slab.truncated.copy(), self.bootstrap
        for t, i in np.argwhere(slab.cut):
            truncated[t, i] = True  # in the invalid row: what runs on from row to row ends here
            if t and not (slab.first[t, i] or slab.filler[t - 1, i] or terminated[t - 1, i]):
                truncated[t - 1, i], bootstrap[t - 1, i] = True, self.packed[t, i, -1]
        return {
            "observation": slab.observation,
            "first": slab.first,
            "filler": slab.filler,
            "packed": self.packed,
            "reward": slab.reward,
            "terminated": terminated,
            "truncated": truncated,
            "bootstrap": bootstrap,
        }


def bad_environment(slab: Slab) -> str:
    """Which environment has given NaN or infinity in this rollout, and in which step of it; nothing where none has."""
    valid = ~slab.filler
    for what, arrays, rows in (("observation", slab.observation, valid), ("reward", (slab.reward,), valid[:-1])):
        for array in arrays:
            if np.issubdtype(array.dtype, np.floating):
                broken = ~np.isfinite(array).all(axis=tuple(range(2, array.ndim))) & rows
                for t, i in np.argwhere(broken)[:1]:
                    return f"environment {i} gave it as {what} in step {t} of the rollout"
    return ""


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
        self.seconds = dict.fromkeys(("environment", "policy", "update"), 0.0)
        self._fresh = True
        self._slab = 0
        self._memory: list[Memory] = []
        self._ahead: Collected | None = None

    def init_policy(self, key: Key[Array, ""]) -> ActorCritic:
        """A fresh policy for the environment's spaces. Raises ``EnvError`` where a space is not supported."""
        return fresh_policy(key, self.env, self.config)

    def init(self, key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> TrainState:
        """The state before the first step."""
        key_policy, key_learner, key_collector = jax.random.split(key, 3)
        policy = self.init_policy(key_policy)
        hyperparameters = hyperparameters or ppo.make_hyperparameters(self.config.ppo)
        learner = ppo.init_learner(key_learner, policy, self.config, hyperparameters)
        return TrainState(learner, HostCollectorState(key_collector), jnp.array(True))

    def begin(self) -> None:
        """What is updated next is no state of this driver's: environments and memory begin anew with it."""
        self._fresh, self._ahead = True, None

    def close(self) -> None:
        """End the environments and their processes."""
        pool, self.pool = self.pool, None
        if pool is not None:
            pool.close()

    def open(self) -> Pool:
        """The environments, made when they are first needed."""
        if self.pool is None:
            env = self.config.env
            options = PoolOptions(
                num_workers=env.num_workers,
                num_groups=2 if env.overlap else 1,
                stagger_steps=env.stagger_steps,
                step_timeout=env.step_timeout,
                max_restarts=env.max_restarts,
                notify=lambda message: self.notify(message),
            )
            self.pool = self.env.open(env.num_envs, self.config.ppo.num_steps, options, 1 + self.config.ppo.learner_lag)
        return self.pool

    def prepare(self, state: TrainState) -> None:
        """Make the environments and compile everything, with rows of nothing."""
        pool, programs = self.open(), self.programs
        policy, slab = state.learner.policy, pool.slabs[0]
        vector, noise, _ = programs.begin(0, policy, state.collector.key)
        collection = _Collection(self, pool, slab, vector, jax.tree.map(np.asarray, noise))
        self._memory = [policy.init_memory(len(columns)) for columns in pool.groups]
        for group, columns in enumerate(pool.groups):
            collection.compile(group, len(columns))
        whole = collection.collected({})
        memory = jax.tree.map(lambda x: jnp.concatenate([x] * programs.pieces), whole.memory)
        programs.learn.program(0, state.learner, state.healthy, vector, whole.rows(), memory, whole.last_memory)

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, float]]:
        """Collect and learn once. With ``learner_lag`` the rollout was collected during the update before, and the next one is
        collected, by the policy of ``state``, while this one is learned."""
        started = time.perf_counter()
        before = dict(self.seconds)
        restarts = self.pool.restarts if self.pool is not None else 0
        if self._ahead is None:
            state, self._ahead = self._collect(state)
        rollout, self._ahead = self._ahead, None
        if self.config.ppo.learner_lag and not self._is_last(state):
            learning = _Background(lambda: self._learn(state, rollout))
            try:
                collected, self._ahead = self._collect(state)
            finally:
                learner, healthy, metrics = learning.result()
            state = TrainState(learner, collected.collector, healthy)
        else:
            learner, healthy, metrics = self._learn(state, rollout)
            state = TrainState(learner, state.collector, healthy)
        spent = {name: self.seconds[name] - before[name] for name in before}
        return state, {**metrics, **rollout.metrics, **self._timing(spent, time.perf_counter() - started, restarts)}

    def _is_last(self, state: TrainState) -> bool:
        low, high = np.asarray(state.learner.steps)
        return (int(high) << 32) + int(low) + self.config.batch_size >= self.config.total_updates * self.config.batch_size

    def _timing(self, spent: dict[str, float], whole: float, restarts: int) -> dict[str, float]:
        assert self.pool is not None
        shares = {f"time/share_{name}": seconds / whole for name, seconds in spent.items()}
        rest = max(0.0, 1.0 - sum(shares.values()))
        return {**shares, "time/share_rest": rest, "rollout/restarts": float(self.pool.restarts - restarts)}

    def _learn(self, state: TrainState, rollout: Collected) -> tuple[Any, Any, dict[str, float]]:
        started = time.perf_counter()
        arguments = (state.learner, state.healthy, rollout.vector, rollout.rows(), rollout.memory, rollout.last_memory)
        learner, healthy, metrics = jax.block_until_ready(self.programs.learn(0, *arguments))
        metrics = {name: float(x) for name, x in jax.device_get(metrics).items()}
        if not healthy and not self.bad_environment:
            self.bad_environment = bad_environment(rollout.slab)
        self.seconds["update"] += time.perf_counter() - started
        return learner, healthy, metrics

    def _start_over(self, pool: Pool, policy: ActorCritic, key: Key[Array, ""]) -> None:
        """Reset all environments, the memory and the episode statistics."""
        seed = np.random.SeedSequence(np.asarray(jax.random.key_data(key)).tolist()).generate_state(1)
        self._slab = 0
        pool.reset(0, int(seed[0]))
        self._memory = [policy.init_memory(len(columns)) for columns in pool.groups]
        self.episodes.begin(bool(self.config.env.stagger_steps))
        self._fresh = False

    def _collect(self, state: TrainState) -> tuple[TrainState, Collected]:
        """``num_steps`` steps of all environments, by the policy of ``state``."""
        pool, programs, policy = self.open(), self.programs, state.learner.policy
        if self._fresh:
            self._start_over(pool, policy, state.collector.key)
            slab = pool.slabs[0]
        else:
            before, self._slab = pool.slabs[self._slab], (self._slab + 1) % len(pool.slabs)
            slab = pool.slabs[self._slab]
            slab.begin_after(before)
        slab.clear()
        vector, noise, key = programs.begin(0, policy, state.collector.key)
        collection = _Collection(self, pool, slab, vector, jax.tree.map(np.asarray, noise))
        collected = collection.run()
        return dataclasses.replace(state, collector=HostCollectorState(key)), collected


class _Collection:
    """One rollout while it is collected."""

    def __init__(self, driver: HostDriver, pool: Pool, slab: Slab, vector: Array, noise: Any):
        self.driver, self.pool, self.slab, self.vector, self.noise = driver, pool, slab, vector, noise
        self.place = pool.slabs.index(slab)
        steps, envs = slab.reward.shape
        self.steps = steps
        programs = driver.programs
        self.taken, sampled = programs.action_columns
        self.packed = np.empty((steps, envs, sampled.stop + 2), vector.dtype)
        self.bootstrap = np.zeros((steps, envs), vector.dtype)
        self.length = driver.config.sequence_length if programs.is_recurrent else steps
        self.pieces: list[list[Memory]] = [[] for _ in pool.groups]

    def run(self) -> Collected:
        """Every group goes through all its steps at its own pace: the policy does not change, so no order matters."""
        pool, seconds = self.pool, self.driver.seconds
        at = [0] * len(pool.groups)
        for group in range(len(at)):
            self._act(0, group)
            pool.send(self.place, 0, group)
        running = list(range(len(at)))
        while running:
            started = time.perf_counter()
            group = pool.ready(running)
            t = at[group]
            cut = pool.receive(self.place, t, group)
            seconds["environment"] += time.perf_counter() - started
            if cut:
                self._bootstrap(t, group)
            at[group] = t + 1
            if t + 1 < self.steps:
                self._act(t + 1, group)
                pool.send(self.place, t + 1, group)
            else:
                running.remove(group)
        return self.collected(self.driver.episodes.add(self.slab))

    def _act(self, t: int, group: int) -> None:
        started = time.perf_counter()
        columns = self.pool.groups[group]
        part = slice(columns.start, columns.stop)
        slab, memory = self.slab, self.driver._memory
        if t % self.length == 0:
            self.pieces[group].append(memory[group])
        packed, memory[group] = self.driver.programs.act(
            len(columns),
            self.vector,
            tuple(leaf[t, part] for leaf in slab.observation),
            jax.tree.map(lambda x: x[t, part], self.noise),
            memory[group],
            slab.first[t, part],
            slab.filler[t, part],
        )
        row = self.packed[t, part] = np.asarray(packed)
        action = slab.action[t, part]
        action[...] = row[:, self.taken].reshape(action.shape)
        self.driver.seconds["policy"] += time.perf_counter() - started

    def _bootstrap(self, t: int, group: int) -> None:
        """Values of what was truncated in step ``t``."""
        started = time.perf_counter()
        columns = self.pool.groups[group]
        part = slice(columns.start, columns.stop)
        final = tuple(leaf[part] for leaf in self.slab.final)
        values = self.driver.programs.final_value(len(columns), self.vector, final, self.driver._memory[group])
        self.bootstrap[t, part] = np.where(self.slab.truncated[t, part], np.asarray(values), 0.0)
        self.driver.seconds["policy"] += time.perf_counter() - started

    def compile(self, group: int, size: int) -> None:
        """Compile acting for ``size`` environments, and give their memory a first piece."""
        part, memory = slice(0, size), self.driver._memory[group]
        observation = tuple(leaf[0, part] for leaf in self.slab.observation)
        noise = jax.tree.map(lambda x: x[0, part], self.noise)
        programs = self.driver.programs
        programs.act.program(size, self.vector, observation, noise, memory, self.slab.first[0, part], self.slab.filler[0, part])
        programs.final_value.program(size, self.vector, tuple(leaf[part] for leaf in self.slab.final), memory)
        self.pieces[group].append(memory)

    def collected(self, metrics: dict[str, float]) -> Collected:
        """All that was collected."""
        def joined(*groups: Any) -> Any:
            return jax.tree.map(lambda *parts: jnp.concatenate(parts), *groups) if len(groups) > 1 else groups[0]

        last_memory = joined(*self.driver._memory)
        pieces = [joined(*parts) for parts in zip(*self.pieces, strict=True)]
        memory = jax.tree.map(lambda *parts: jnp.stack(parts), *pieces)
        return Collected(self.slab, self.packed, self.bootstrap, memory, last_memory, self.vector, metrics)


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
