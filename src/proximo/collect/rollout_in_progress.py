"""One rollout of Gymnasium environments while it is collected: acting, stepping, bootstrapping."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from proximo.collect.gymnasium_programs import GymnasiumPrograms
from proximo.collect.gymnasium_rollout import BurnInSteps, GymnasiumRollout, PackedPolicy, PreviousSteps
from proximo.envs.gymnasium.rollout_buffer import RolloutBuffer
from proximo.envs.gymnasium.vector_environment import VectorEnvironment
from proximo.types import Memory


@dataclasses.dataclass
class Timing:
    """Seconds of an update, by what they were spent on."""

    environment: float = 0.0
    policy: float = 0.0
    update: float = 0.0

    def shares(self, seconds: float) -> dict[str, float]:
        """The metrics ``time/share_…`` of an update that took ``seconds``; they sum to 1."""
        shares = {f"time/share_{name}": spent / seconds for name, spent in vars(self).items()}
        return {**shares, "time/share_rest": max(0.0, 1.0 - sum(shares.values()))}


@dataclasses.dataclass
class RolloutEnd:
    """What the end of one rollout passes on to the next."""

    memory: list[Memory]
    """Of each group, after the last step."""
    last_step: PreviousSteps | None = None
    """N: the last valid step, if the policy observes it."""
    burn_in_steps: BurnInSteps | None = None
    """B N: the last steps, with burn-in."""
    burn_in_memory: list[Memory] = dataclasses.field(default_factory=list)
    """Of each group, before ``burn_in_steps``."""

    @classmethod
    def empty(cls, memory: list[Memory], buffer: RolloutBuffer, programs: GymnasiumPrograms) -> RolloutEnd:
        """Before the first rollout: the memory of each group is empty, and no step was taken."""
        burn_in, envs = programs.burn_in, buffer.reward.shape[1]

        def no_steps(*shape: int) -> PreviousSteps | None:
            packed = np.full((*shape, programs.columns.count), np.nan, programs.dtype)
            return PreviousSteps(packed, np.zeros(shape, buffer.reward.dtype)) if programs.observes_previous else None

        if not burn_in:
            return cls(memory, no_steps(envs))
        never = np.zeros((burn_in, envs), bool)
        observation = tuple(np.zeros((burn_in, *leaf.shape[1:]), leaf.dtype) for leaf in buffer.observation)
        return cls(memory, no_steps(envs), BurnInSteps(observation, never, never, no_steps(burn_in, envs)), list(memory))


@dataclasses.dataclass(frozen=True, eq=False)
class _Group:
    """The columns of one group of ``n`` environments. These are views that are made once, because making them takes as long as a
    step of a small environment."""

    part: slice
    size: int
    observation: tuple[np.ndarray, ...]
    final: tuple[np.ndarray, ...]
    noise: tuple[np.ndarray, ...]
    episode_start: np.ndarray
    valid: np.ndarray
    truncated: np.ndarray
    action: np.ndarray
    packed: np.ndarray

    @classmethod
    def of(cls, columns: range, buffer: RolloutBuffer, packed: np.ndarray, noise: list[Any]) -> _Group:
        part = slice(columns.start, columns.stop)

        def views(arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
            return tuple(np.asarray(array)[:, part] for array in arrays)

        flags = views((buffer.episode_start, buffer.valid, buffer.truncated, buffer.action, packed))
        final = tuple(array[part] for array in buffer.final_observation)
        return cls(part, len(columns), views(buffer.observation), final, views(noise), *flags)


class RolloutInProgress:
    """Collects one rollout into the rollout buffer ``index`` of the vector environment, whose groups step at their own pace.

    ``noise`` has the random numbers of all actions, T N .... ``timing`` adds the seconds of environments and policy.
    """

    def __init__(
        self,
        vector_env: VectorEnvironment,
        index: int,
        programs: GymnasiumPrograms,
        policy: PackedPolicy,
        noise: Any,
        start: RolloutEnd,
        timing: Timing,
    ):
        self.vector_env, self.index, self.buffer, self.programs = vector_env, index, vector_env.buffers[index], programs
        self.policy, self.start, self.timing = policy, start, timing
        self.memory = list(start.memory)
        """Of each group, after its last step."""
        self._memory_before = list(start.memory)
        """Of each group, before its last step."""
        self.num_steps, envs = self.buffer.reward.shape
        self.packed = np.empty((self.num_steps, envs, programs.columns.count), programs.dtype)
        self.bootstrap_value = np.zeros((self.num_steps, envs), programs.dtype)
        self.previous = self._begin_previous(start.last_step)
        leaves = jax.tree.leaves(noise)
        self.groups = [_Group.of(columns, self.buffer, self.packed, leaves) for columns in vector_env.groups]
        self.stored: list[list[Memory]] = [[memory] for memory in start.burn_in_memory] or [[] for _ in self.groups]
        """Of each group, the memories before its sequences, burn-in included."""

    def _begin_previous(self, last: PreviousSteps | None) -> PreviousSteps | None:
        """Storage for ``GymnasiumRollout.previous``, which begins with ``last``."""
        if last is None:
            return None
        previous = PreviousSteps(*(np.empty((self.num_steps + 1, *x.shape), x.dtype) for x in last))
        previous.packed[0], previous.reward[0] = last
        return previous

    def run(self) -> GymnasiumRollout:
        """Collect. Every group takes its steps at its own pace: the policy does not change, so the order does not matter."""
        vector_env, timing = self.vector_env, self.timing
        if self.programs.burn_in:
            # By the policy that acts now, so that sequences with burn-in are read as they were acted on.
            self.memory = [self.programs.run_burn_in(group.size, *self._burn_in(g)) for g, group in enumerate(self.groups)]
        running = list(range(len(self.groups)))
        now = [0 for _ in running]
        for g in running:
            self._act(0, g)
            self._send(0, g)
        while running:
            started = time.perf_counter()
            g = vector_env.ready(running)
            t, restarts = now[g], vector_env.restarts
            has_truncated = vector_env.receive(self.index, t, g)
            timing.environment += time.perf_counter() - started
            self._store_previous(t, self.groups[g].part)
            if vector_env.restarts != restarts and self.programs.is_recurrent:
                self._restore_memory(t, g)
            if has_truncated:
                self._bootstrap(t, g)
            now[g] = t + 1
            if t + 1 < self.num_steps:
                self._act(t + 1, g)
                self._send(t + 1, g)
            else:
                running.remove(g)
        return self._rollout()

    def end(self) -> RolloutEnd:
        """What the next rollout begins with. Steps of the rollout buffer are copied, because it is filled again."""
        buffer = self.buffer
        last_step = jax.tree.map(lambda x: x[-1], self.previous)
        if not self.programs.burn_in:
            return RolloutEnd(self.memory, last_step)
        late = slice(self.num_steps - self.programs.burn_in, self.num_steps)
        burn_in_steps = BurnInSteps(
            tuple(leaf[late].copy() for leaf in buffer.observation),
            buffer.episode_start[late].copy(),
            buffer.valid[late].copy(),
            jax.tree.map(lambda x: x[late], self.previous),
        )
        return RolloutEnd(self.memory, last_step, burn_in_steps, [memories[-1] for memories in self.stored])

    def compile(self) -> GymnasiumRollout:
        """Compile all functions that collecting calls. Returns a rollout with the shapes of any other and without meaning."""
        for g, group in enumerate(self.groups):
            self.programs.act.program(group.size, *self._acting(0, g))
            self.programs.final_value.program(group.size, *self._final(0, g))
            if self.programs.burn_in:
                self.programs.run_burn_in.program(group.size, *self._burn_in(g))
            self.stored[g] = [self.memory[g]] * (self.num_steps // self.programs.sequence_length)
        return self._rollout()

    def _send(self, t: int, g: int) -> None:
        started = time.perf_counter()
        self.vector_env.send(self.index, t, g)
        self.timing.environment += time.perf_counter() - started

    def _act(self, t: int, g: int) -> None:
        started = time.perf_counter()
        group = self.groups[g]
        if (t + self.programs.burn_in) % self.programs.sequence_length == 0:
            self.stored[g].append(self.memory[g])
        self._memory_before[g] = self.memory[g]
        packed, self.memory[g] = self.programs.act(group.size, *self._acting(t, g))
        step = group.packed[t] = np.asarray(packed)
        action = group.action[t]
        action[...] = step[:, self.programs.columns.env_action].reshape(action.shape)
        if self.programs.action_bounds is not None:
            np.clip(action, *self.programs.action_bounds, out=action)  # rounding to float32 may have passed them
        self.timing.policy += time.perf_counter() - started

    def _acting(self, t: int, g: int) -> tuple[Any, ...]:
        """The arguments of ``programs.act`` in step ``t``."""
        group = self.groups[g]
        observation, noise = tuple([leaf[t] for leaf in group.observation]), tuple([leaf[t] for leaf in group.noise])
        flags = (group.episode_start[t], group.valid[t]) if self.programs.reads_flags else (None, None)
        return self.policy, observation, noise, self.memory[g], *flags, self._previous_of(t, group.part)

    def _final(self, t: int, g: int) -> tuple[Any, ...]:
        """The arguments of ``programs.final_value`` after step ``t``."""
        group = self.groups[g]
        return self.policy, group.final, self.memory[g], self._previous_of(t + 1, group.part)

    def _burn_in(self, g: int) -> tuple[Any, ...]:
        """The arguments of ``programs.run_burn_in``."""
        part = self.groups[g].part
        return self.policy, self.start.burn_in_memory[g], jax.tree.map(lambda x: x[:, part], self.start.burn_in_steps)

    def _previous_of(self, t: int, part: slice) -> PreviousSteps | None:
        """The last valid step before step ``t`` of a group, if the policy observes it."""
        return None if self.previous is None else PreviousSteps(self.previous.packed[t, part], self.previous.reward[t, part])

    def _store_previous(self, t: int, part: slice) -> None:
        """Store step ``t`` of a group as the one before its next step. An invalid step is skipped: the last valid one stays."""
        if self.previous is None:
            return
        self.previous.packed[t + 1, part], self.previous.reward[t + 1, part] = self.packed[t, part], self.buffer.reward[t, part]
        valid = self.buffer.valid[t, part]
        if not valid.all():
            for stored in self.previous:
                stored[t + 1, part][~valid] = stored[t, part][~valid]

    def _restore_memory(self, t: int, g: int) -> None:
        """Undo the memory update of step ``t`` for environments that were lost in it.

        The policy acted before their worker was lost. It acts again on the memory before the step, where the lost steps are now
        invalid and leave their memory unchanged.
        """
        self.memory[g] = self._memory_before[g]
        _, self.memory[g] = self.programs.act(self.groups[g].size, *self._acting(t, g))

    def _bootstrap(self, t: int, g: int) -> None:
        """Store the values of the final observations of episodes that were truncated in step ``t``."""
        started = time.perf_counter()
        group = self.groups[g]
        values = np.asarray(self.programs.final_value(group.size, *self._final(t, g)))
        self.bootstrap_value[t, group.part] = np.where(group.truncated[t], values, 0.0)
        self.timing.policy += time.perf_counter() - started

    def _rollout(self) -> GymnasiumRollout:
        count = self.num_steps // self.programs.sequence_length  # with burn-in, one more is stored for the next rollout
        before = [_joined(parts) for parts in zip(*(memories[:count] for memories in self.stored), strict=True)]
        return GymnasiumRollout.of(
            self.buffer,
            self.programs.columns,
            self.packed,
            self.bootstrap_value,
            policy=self.policy,
            memory=jax.tree.map(lambda *parts: jnp.stack(parts), *before),
            last_memory=_joined(self.memory),
            previous=self.previous,
            burn_in_steps=self.start.burn_in_steps,
        )


def _joined(groups: Sequence[Memory]) -> Memory:
    """The memory of all environments from that of each group."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *groups) if len(groups) > 1 else groups[0]
