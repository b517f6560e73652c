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
from proximo.networks import ActorCritic
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
    last_step: PreviousSteps | None
    """N: the last valid step, if the policy observes it."""
    burn_in_steps: BurnInSteps | None = None
    """B N: the last steps, with burn-in."""
    burn_in_memory: list[Memory] = dataclasses.field(default_factory=list)
    """Of each group, before ``burn_in_steps``."""

    @classmethod
    def empty(cls, policy: ActorCritic, vector_env: VectorEnvironment, programs: GymnasiumPrograms) -> RolloutEnd:
        """Before the first rollout: memories are empty, and no step was taken."""
        buffer, burn_in = vector_env.buffers[0], programs.burn_in
        memory, envs = [policy.init_memory(len(columns)) for columns in vector_env.groups], buffer.reward.shape[1]

        def no_steps(*shape: int) -> PreviousSteps | None:
            packed = np.full((*shape, programs.columns.count), np.nan, programs.dtype)
            return PreviousSteps(packed, np.zeros(shape, buffer.reward.dtype)) if programs.observes_previous else None

        if not burn_in:
            return cls(memory, no_steps(envs))
        never = np.zeros((burn_in, envs), bool)
        observation = tuple(np.zeros((burn_in, *leaf.shape[1:]), leaf.dtype) for leaf in buffer.observation)
        return cls(memory, no_steps(envs), BurnInSteps(observation, never, never, no_steps(burn_in, envs)), list(memory))


class _Group:
    """A group of environments, which steps at its own pace, and views of its columns. The views are made once, because making
    them takes as long as a step of a small environment."""

    def __init__(self, index: int, columns: range, buffer: RolloutBuffer, packed: np.ndarray, noise: list[Any], memory: Memory):
        self.index, self.size = index, len(columns)
        self.part = part = slice(columns.start, columns.stop)
        self.observation = [leaf[:, part] for leaf in buffer.observation]
        self.final = tuple(leaf[part] for leaf in buffer.final_observation)
        self.noise = [np.asarray(leaf)[:, part] for leaf in noise]
        self.episode_start, self.valid = buffer.episode_start[:, part], buffer.valid[:, part]
        self.truncated, self.action, self.packed = buffer.truncated[:, part], buffer.action[:, part], packed[:, part]
        self.t = 0
        """The step that it takes now."""
        self.memory = self.memory_before = memory
        """After and before the last step."""
        self.stored: list[Memory] = []
        """The memories before its sequences, burn-in included."""


class RolloutInProgress:
    """Collects one rollout into the rollout buffer ``index`` of the vector environment, whose groups step at their own pace.

    ``noise`` has the random numbers of all actions, T N .... The seconds of environments and policy are added to ``timing``.
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
        self.num_steps, envs = self.buffer.reward.shape
        self.packed = np.empty((self.num_steps, envs, programs.columns.count), programs.dtype)
        self.bootstrap_value = np.zeros((self.num_steps, envs), programs.dtype)
        self.previous = self._begin_previous(start.last_step)
        self.groups = [
            _Group(g, columns, self.buffer, self.packed, jax.tree.leaves(noise), start.memory[g])
            for g, columns in enumerate(vector_env.groups)
        ]
        for group, memory in zip(self.groups, start.burn_in_memory, strict=False):
            group.stored.append(memory)

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
        for group in self.groups:
            if self.programs.burn_in:
                # With the policy that acts in this rollout: the learner recomputes the memory of the first sequence from its burn-in in the
                # same way.
                group.memory = self.programs.run_burn_in(group.size, *self._burn_in(group))
            self._act(group, 0)
        running = [group.index for group in self.groups]
        while running:
            started = time.perf_counter()
            group = self.groups[vector_env.ready(running)]
            t, restarts = group.t, vector_env.restarts
            has_truncated = vector_env.receive(self.index, t, group.index)
            timing.environment += time.perf_counter() - started
            self._store_previous(group, t)
            if vector_env.restarts != restarts and self.programs.is_recurrent:
                self._restore_memory(group, t)
            if has_truncated:
                self._bootstrap(group, t)
            if t + 1 < self.num_steps:
                self._act(group, t + 1)
            else:
                running.remove(group.index)
        return self._rollout()

    def end(self) -> RolloutEnd:
        """What the next rollout begins with. Steps of the rollout buffer are copied, because it is filled again."""
        buffer, burn_in = self.buffer, self.programs.burn_in
        memory, last_step = [group.memory for group in self.groups], jax.tree.map(lambda x: x[-1], self.previous)
        if not burn_in:
            return RolloutEnd(memory, last_step)
        late = slice(self.num_steps - burn_in, self.num_steps)
        burn_in_steps = BurnInSteps(
            tuple(leaf[late].copy() for leaf in buffer.observation),
            buffer.episode_start[late].copy(),
            buffer.valid[late].copy(),
            jax.tree.map(lambda x: x[late], self.previous),
        )
        return RolloutEnd(memory, last_step, burn_in_steps, [group.stored[-1] for group in self.groups])

    def compile(self) -> None:
        """Compile all functions that collecting calls."""
        for group in self.groups:
            self.programs.act.program(group.size, *self._acting(group, 0))
            self.programs.final_value.program(group.size, *self._final(group, 0))
            if self.programs.burn_in:
                self.programs.run_burn_in.program(group.size, *self._burn_in(group))

    def any_rollout(self) -> GymnasiumRollout:
        """A rollout whose shapes are right and whose numbers are arbitrary, instead of ``run``."""
        for group in self.groups:
            group.stored = [group.memory] * (self.num_steps // self.programs.sequence_length)
        return self._rollout()

    def _act(self, group: _Group, t: int) -> None:
        """Act in step ``t``, and let the environments begin it."""
        started = time.perf_counter()
        if (t + self.programs.burn_in) % self.programs.sequence_length == 0:
            group.stored.append(group.memory)
        group.t, group.memory_before = t, group.memory
        packed, group.memory = self.programs.act(group.size, *self._acting(group, t))
        step = group.packed[t] = np.asarray(packed)
        action = group.action[t]
        action[...] = step[:, self.programs.columns.env_action].reshape(action.shape)
        acted = time.perf_counter()
        self.vector_env.send(self.index, t, group.index)
        self.timing.policy += acted - started
        self.timing.environment += time.perf_counter() - acted

    def _acting(self, group: _Group, t: int) -> tuple[Any, ...]:
        """The arguments of ``programs.act`` in step ``t``."""
        observation, noise = tuple([leaf[t] for leaf in group.observation]), tuple([leaf[t] for leaf in group.noise])
        flags = (group.episode_start[t], group.valid[t]) if self.programs.reads_flags else (None, None)
        return self.policy, observation, noise, group.memory, *flags, self._previous_of(group, t)

    def _final(self, group: _Group, t: int) -> tuple[Any, ...]:
        """The arguments of ``programs.final_value`` after step ``t``."""
        return self.policy, group.final, group.memory, self._previous_of(group, t + 1)

    def _burn_in(self, group: _Group) -> tuple[Any, ...]:
        """The arguments of ``programs.run_burn_in``."""
        steps = jax.tree.map(lambda x: x[:, group.part], self.start.burn_in_steps)
        return self.policy, self.start.burn_in_memory[group.index], steps

    def _previous_of(self, group: _Group, t: int) -> PreviousSteps | None:
        """The last valid step before step ``t``, if the policy observes it."""
        if self.previous is None:
            return None
        return PreviousSteps(self.previous.packed[t, group.part], self.previous.reward[t, group.part])

    def _store_previous(self, group: _Group, t: int) -> None:
        """Store step ``t`` as the one before the next step. A padding step is skipped: the last valid one stays."""
        if self.previous is None:
            return
        here, after = (t, group.part), (t + 1, group.part)
        self.previous.packed[after], self.previous.reward[after] = self.packed[here], self.buffer.reward[here]
        valid = self.buffer.valid[here]
        if not valid.all():
            for stored in self.previous:
                stored[after][~valid] = stored[here][~valid]

    def _restore_memory(self, group: _Group, t: int) -> None:
        """Undo the memory update of step ``t`` for environments that were lost in it.

        The policy acted before their worker was lost. It acts again on the memory before the step, where the lost steps are now
        invalid and leave their memory unchanged.
        """
        group.memory = group.memory_before
        _, group.memory = self.programs.act(group.size, *self._acting(group, t))

    def _bootstrap(self, group: _Group, t: int) -> None:
        """Store the values of the final observations of episodes that were truncated in step ``t``."""
        started = time.perf_counter()
        values = np.asarray(self.programs.final_value(group.size, *self._final(group, t)))
        self.bootstrap_value[t, group.part] = np.where(group.truncated[t], values, 0.0)
        self.timing.policy += time.perf_counter() - started

    def _rollout(self) -> GymnasiumRollout:
        count = self.num_steps // self.programs.sequence_length  # with burn-in, one more is stored for the next rollout
        before = [_joined(memories) for memories in zip(*(group.stored[:count] for group in self.groups), strict=True)]
        return GymnasiumRollout.of(
            self.buffer,
            self.programs.columns,
            self.packed,
            self.bootstrap_value,
            policy=self.policy,
            memory=jax.tree.map(lambda *parts: jnp.stack(parts), *before),
            last_memory=_joined([group.memory for group in self.groups]),
            previous=self.previous,
            burn_in_steps=self.start.burn_in_steps,
        )


def _joined(groups: Sequence[Memory]) -> Memory:
    """The memory of all environments from that of each group."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *groups) if len(groups) > 1 else groups[0]
