"""One rollout on the host: acting, stepping, and what the learner takes of it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from proximo.drivers.host_programs import Before, HostPrograms, PackedPolicy
from proximo.envs.host.pool import Pool
from proximo.envs.host.slab import Slab
from proximo.types import Memory

EarlyRows = tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray, Before | None]
"""Leaves of the observation, first, valid, and the steps before, of rows that sequences burn in on."""


@dataclasses.dataclass
class Carried:
    """What goes over from rollout to rollout: the memory of each group behind the last row; the last step, where the policy
    observes it; with burn-in, the last rows and the memories before them."""

    memory: list[Memory]
    last_step: Before | None = None
    rows: EarlyRows | None = None
    before: list[Memory] = dataclasses.field(default_factory=list)

    @classmethod
    def empty(cls, memory: list[Memory], slab: Slab, programs: HostPrograms) -> Carried:
        """Before the first row of all."""
        burn_in, envs = programs.burn_in, slab.reward.shape[1]

        def steps(*shape: int) -> Before | None:
            row = np.full((*shape, programs.packed_columns), np.nan, programs.dtype)
            return (row, np.zeros(shape, slab.reward.dtype)) if programs.observes_before else None

        if not burn_in:
            return cls(memory, steps(envs))
        nothing = np.zeros((burn_in, envs), bool)
        observation = tuple(np.zeros((burn_in, *leaf.shape[1:]), leaf.dtype) for leaf in slab.observation)
        return cls(memory, steps(envs), (observation, nothing, nothing, steps(burn_in, envs)), list(memory))


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
    policy: PackedPolicy
    """The policy that acted."""
    before: Before | None = None
    """T+1 N ...: the last valid step before each row, where the policy observes it."""
    warmup: EarlyRows | None = None
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)

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
            "before": self.before,
            "warmup": self.warmup,
        }


def bad_environment(rollout: Collected) -> str:
    """Which environment has given NaN or infinity in this rollout, and in which step of it; nothing where none has."""
    slab, valid = rollout.slab, ~rollout.slab.filler
    looked = [("observation", array, valid) for array in slab.observation]
    looked += [("reward", slab.reward, valid[:-1]), ("final observation", rollout.bootstrap, slab.truncated)]
    for what, array, rows in looked:
        if np.issubdtype(array.dtype, np.floating):
            broken = ~np.isfinite(array).all(axis=tuple(range(2, array.ndim))) & rows
            if broken.any():
                t, i = np.argwhere(broken)[0]
                return f"environment {i} gave it as {what} in step {t} of the rollout"
    return ""


@dataclasses.dataclass(frozen=True, eq=False)
class _Lane:
    """The columns of one group: views that are made once, because a step of a small environment takes no longer than a few of
    them."""

    part: slice
    size: int
    observation: tuple[np.ndarray, ...]
    final: tuple[np.ndarray, ...]
    noise: tuple[np.ndarray, ...]
    first: np.ndarray
    filler: np.ndarray
    truncated: np.ndarray
    action: np.ndarray
    packed: np.ndarray

    @classmethod
    def of(cls, columns: range, slab: Slab, packed: np.ndarray, noise: list[Any]) -> _Lane:
        part = slice(columns.start, columns.stop)

        def views(arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
            return tuple(np.asarray(array)[:, part] for array in arrays)

        first, filler, truncated, action, packed = views((slab.first, slab.filler, slab.truncated, slab.action, packed))
        final = tuple(array[part] for array in slab.final)
        return cls(part, len(columns), views(slab.observation), final, views(noise), first, filler, truncated, action, packed)


class Collection:
    """One rollout while it is collected, into the slab at ``place`` of the pool.

    ``carried`` comes from the rollout before, and after ``run`` is what goes over to the next; ``seconds`` counts what is spent
    under "environment" and "policy"; ``noise`` has a row for each step.
    """

    def __init__(
        self,
        pool: Pool,
        place: int,
        programs: HostPrograms,
        policy: PackedPolicy,
        noise: Any,
        carried: Carried,
        seconds: dict[str, float],
    ):
        self.pool, self.place, self.slab, self.programs = pool, place, pool.slabs[place], programs
        self.policy, self.carried, self.memory, self.seconds = policy, carried, list(carried.memory), seconds
        self.memory_before = list(carried.memory)
        """Memory of each group before its last step."""
        self.burn_in = programs.burn_in
        self.steps, envs = self.slab.reward.shape
        self.taken, _ = programs.action_columns
        self.packed = np.empty((self.steps, envs, programs.packed_columns), programs.dtype)
        self.bootstrap = np.zeros((self.steps, envs), programs.dtype)
        self.bounds = programs.action_bounds
        self.before = self._begin_before(carried.last_step)
        leaves = jax.tree.leaves(noise)
        self.lanes = [_Lane.of(columns, self.slab, self.packed, leaves) for columns in pool.groups]
        self.pieces: list[list[Memory]] = [[memory] for memory in carried.before] if self.burn_in else [[] for _ in pool.groups]

    def _begin_before(self, last: Before | None) -> Before | None:
        """Storage for ``Collected.before``, whose first row is ``last``."""
        if last is None:
            return None
        row, reward = (np.empty((self.steps + 1, *x.shape), x.dtype) for x in last)
        row[0], reward[0] = last
        return row, reward

    def _keep_step(self, t: int, part: slice) -> None:
        """Store step ``t`` of a group as the previous step of its next row. An invalid step is skipped: the last valid one stays."""
        if self.before is None:
            return
        row, reward = self.before
        row[t + 1, part], reward[t + 1, part] = self.packed[t, part], self.slab.reward[t, part]
        invalid = self.slab.filler[t, part]
        if invalid.any():
            for kept in self.before:
                kept[t + 1, part][invalid] = kept[t, part][invalid]

    def run(self) -> Collected:
        """Every group goes through all its steps at its own pace: the policy does not change, so no order matters."""
        pool, seconds = self.pool, self.seconds
        at = [0] * len(pool.groups)
        if self.burn_in:
            # By the policy that acts now, so that sequences which burn in are read as they were acted on.
            self.memory = [self.programs.warm(lane.size, *self._warming(g)) for g, lane in enumerate(self.lanes)]
        for group in range(len(at)):
            self._act(0, group)
            self._send(0, group)
        running = list(range(len(at)))
        while running:
            started = time.perf_counter()
            group = pool.ready(running)
            t, restarts = at[group], pool.restarts
            cut = pool.receive(self.place, t, group)
            seconds["environment"] += time.perf_counter() - started
            self._keep_step(t, self.lanes[group].part)
            if pool.restarts != restarts and self.programs.is_recurrent:
                self._restore_memory(t, group)
            if cut:
                self._bootstrap(t, group)
            at[group] = t + 1
            if t + 1 < self.steps:
                self._act(t + 1, group)
                self._send(t + 1, group)
            else:
                running.remove(group)
        collected = self._collected()
        self.carried = self._next()
        return collected

    def _warming(self, group: int) -> tuple[Any, ...]:
        assert self.carried.rows is not None
        part = self.lanes[group].part
        rows = jax.tree.map(lambda x: x[:, part], self.carried.rows)
        return self.policy, self.carried.before[group], *rows

    def _next(self) -> Carried:
        """What goes over to the next rollout; rows are copied, because a slab is filled again."""
        slab = self.slab
        last_step = jax.tree.map(lambda x: x[-1], self.before)
        if not self.burn_in:
            return Carried(self.memory, last_step)
        late = slice(self.steps - self.burn_in, self.steps)
        steps = jax.tree.map(lambda x: x[late], self.before)
        rows = (tuple(leaf[late].copy() for leaf in slab.observation), slab.first[late].copy(), ~slab.filler[late], steps)
        return Carried(self.memory, last_step, rows, [pieces[-1] for pieces in self.pieces])

    def _before(self, t: int, part: slice) -> Before | None:
        """The last valid step before row ``t`` of a group, where the policy observes it."""
        return None if self.before is None else (self.before[0][t, part], self.before[1][t, part])

    def _send(self, t: int, group: int) -> None:
        started = time.perf_counter()
        self.pool.send(self.place, t, group)
        self.seconds["environment"] += time.perf_counter() - started

    def _act(self, t: int, group: int) -> None:
        started = time.perf_counter()
        lane = self.lanes[group]
        if (t + self.burn_in) % self.programs.piece_length == 0:
            self.pieces[group].append(self.memory[group])
        self.memory_before[group] = self.memory[group]
        packed, self.memory[group] = self.programs.act(lane.size, *self._acting(t, group))
        row = lane.packed[t] = np.asarray(packed)
        action = lane.action[t]
        action[...] = row[:, self.taken].reshape(action.shape)
        if self.bounds is not None:
            np.clip(action, *self.bounds, out=action)  # rounding to float32 may have passed them
        self.seconds["policy"] += time.perf_counter() - started

    def _restore_memory(self, t: int, group: int) -> None:
        """Undo the memory update of step ``t`` for environments that were lost in it.

        The policy acted before their worker was lost. It acts again on the memory before the step, where the lost rows are now
        invalid and leave their memory unchanged.
        """
        self.memory[group] = self.memory_before[group]
        _, self.memory[group] = self.programs.act(self.lanes[group].size, *self._acting(t, group))

    def _acting(self, t: int, group: int) -> tuple[Any, ...]:
        """What the policy acts upon in step ``t``; without a memory nobody asks where episodes begin."""
        lane = self.lanes[group]
        observation, noise = tuple([leaf[t] for leaf in lane.observation]), tuple([leaf[t] for leaf in lane.noise])
        flags = (lane.first[t], lane.filler[t]) if self.programs.reads_flags else (None, None)
        return self.policy, observation, noise, self.memory[group], *flags, self._before(t, lane.part)

    def _final(self, t: int, group: int) -> tuple[Any, ...]:
        lane = self.lanes[group]
        return self.policy, lane.final, self.memory[group], self._before(t + 1, lane.part)

    def _bootstrap(self, t: int, group: int) -> None:
        """Values of what was truncated in step ``t``."""
        started = time.perf_counter()
        lane = self.lanes[group]
        values = np.asarray(self.programs.final_value(lane.size, *self._final(t, group)))
        self.bootstrap[t, lane.part] = np.where(lane.truncated[t], values, 0.0)
        self.seconds["policy"] += time.perf_counter() - started

    def compile(self) -> Collected:
        """Compile all that is called while collecting; a rollout of nothing, in the shapes of any other."""
        for group, lane in enumerate(self.lanes):
            self.programs.act.program(lane.size, *self._acting(0, group))
            self.programs.final_value.program(lane.size, *self._final(0, group))
            if self.burn_in:
                self.programs.warm.program(lane.size, *self._warming(group))
            self.pieces[group] = [self.memory[group]] * (self.steps // self.programs.piece_length)
        return self._collected()

    def _collected(self) -> Collected:
        count = self.steps // self.programs.piece_length  # with burn-in, the last one is before a sequence of the next rollout
        pieces = [_joined(parts) for parts in zip(*(kept[:count] for kept in self.pieces), strict=True)]
        memory = jax.tree.map(lambda *parts: jnp.stack(parts), *pieces)
        return Collected(
            self.slab,
            self.packed,
            self.bootstrap,
            memory,
            _joined(self.memory),
            self.policy,
            self.before,
            self.carried.rows,
        )


def _joined(groups: Sequence[Memory]) -> Memory:
    """The memory of all environments from that of each group."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *groups) if len(groups) > 1 else groups[0]
