"""Collects rollouts of Gymnasium environments. The next rollout starts where the last one ended."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from proximo.collect.devices import joined, on_one_device
from proximo.collect.environment import vector_options
from proximo.collect.episode_tally import Episode, EpisodeTally
from proximo.collect.gymnasium_programs import GymnasiumPrograms, PackedPolicy, Rows
from proximo.collect.lazy_vector_environment import LazyVectorEnvironment
from proximo.config import Config
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.vector_environment import VectorEnvironment
from proximo.networks import ActorCritic
from proximo.ppo.hyperparameters import Hyperparameters
from proximo.processes.peers import ALONE, Peers
from proximo.threads import together
from proximo.types import GymnasiumCollectorState, Memory, Rollout, TrainState


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


class _Steps:
    """The rollout buffer of a vector environment, and what the collector adds: packed steps, bootstrap values, and
    the previous action and reward, which are entries of the observation.

    It has B + T steps. The first B + 1 rows are the last ones of the previous rollout: burn-in, and the first row.
    """

    def __init__(self, vector_env: VectorEnvironment, programs: GymnasiumPrograms):
        self.burn_in, self.programs, self.whole = programs.burn_in, programs, vector_env.buffer
        self.buffer = self.whole.since(self.burn_in)
        shape = self.buffer.reward.shape
        self.packed = np.zeros((*shape, programs.columns), programs.dtype)
        self.bootstrap_value = np.zeros(shape, programs.dtype)
        self.previous: tuple[np.ndarray, ...] = ()
        """B+T+1 N ...: of the last valid step before each row, if the policy observes them."""
        if programs.observes_previous:
            examples = self.packed[0][:, programs.observed_action], self.buffer.reward[0]
            self.previous = tuple(np.zeros((len(self.whole.valid), *x.shape), x.dtype) for x in examples)
        observation = (*self.whole.observation, *self.previous)
        self.rows: Rows = (observation, self.whole.episode_start, self.whole.valid)

    def begin(self) -> None:
        """Begin with row 0, into which a reset has written. No step was taken before it."""
        for x in self.previous:
            x[0] = 0
        for x in jax.tree.leaves(self.rows):
            x[self.burn_in] = x[0]
            x[: self.burn_in] = 0
        self._clear()

    def go_on(self) -> None:
        """Begin with the last rows of the previous rollout."""
        front = self.burn_in + 1
        for x in jax.tree.leaves(self.rows):
            x[:front] = x[-front:].copy()
        self._clear()

    def _clear(self) -> None:
        self.buffer.clear()
        self.bootstrap_value[:] = 0

    def results(self) -> dict[str, np.ndarray]:
        """The fields of a ``Rollout`` that are results of steps, T N. A lost life is a termination for the learner.

        An environment that was lost in step t leaves padding. Its episode is truncated before it, with the value of step t.
        """
        buffer, bootstrap_value = self.buffer, self.bootstrap_value.copy()
        terminated, truncated = buffer.terminated | buffer.life_lost, buffer.truncated.copy()
        for t, i in np.argwhere(buffer.lost):
            truncated[t, i] = True  # restarts the running return that scales rewards
            if t and buffer.valid[t - 1, i] and not (buffer.episode_start[t, i] or terminated[t - 1, i]):
                truncated[t - 1, i], bootstrap_value[t - 1, i] = True, self.packed[t, i, -1]
        reward = buffer.reward.copy()  # the program may return what it does not change
        return {"reward": reward, "terminated": terminated, "truncated": truncated, "bootstrap_value": bootstrap_value}


class _Group:
    """A group of environments, which steps at its own pace, with its memory and views of its columns. The views are made
    once, because this takes as long as a step of a small environment."""

    def __init__(self, index: int, columns: range, steps: _Steps, memory: Memory):
        self.index, self.size, self.programs = index, len(columns), steps.programs
        self.part = part = slice(columns.start, columns.stop)
        rows, buffer, burn_in = jax.tree.map(lambda x: x[:, part], steps.rows), steps.buffer, steps.burn_in
        self.burn_in_rows: Rows = jax.tree.map(lambda x: x[:burn_in], rows)
        self.observation, self.episode_start, self.valid = jax.tree.map(lambda x: x[burn_in:], rows)
        self.previous = self.observation[len(buffer.observation) :]
        self.final = tuple(x[part] for x in buffer.final_observation)
        self.reward, self.truncated, self.action = buffer.reward[:, part], buffer.truncated[:, part], buffer.action[:, part]
        self.packed, self.bootstrap_value = steps.packed[:, part], steps.bootstrap_value[:, part]
        self.t = 0
        """The step that it takes now."""
        self.memory = self.memory_before = memory
        """After and before the last step."""
        self.stored = [memory]
        """The memories before its sequences or their burn-in, whose last one belongs to the next rollout."""

    def begin(self, policy: PackedPolicy, noise: Sequence[Any]) -> None:
        """Begin a rollout with this policy and the random numbers of all environments, T N ...."""
        self.policy, self.noise = policy, [np.asarray(x)[:, self.part] for x in noise]
        if self.programs.burn_in:
            # With the policy that acts in this rollout, as the learner does it.
            self.stored = self.stored[-1:]
            self.memory = self.programs.run_burn_in(self.size, *self._burn_in())
        else:
            self.stored = []

    def act(self, t: int) -> None:
        """Act in step ``t``."""
        if (t + self.programs.burn_in) % self.programs.sequence_length == 0:
            self.stored.append(self.memory)
        self.t, self.memory_before = t, self.memory
        packed, self.memory = self.programs.act(self.size, *self._acting(t))
        step = self.packed[t] = np.asarray(packed)
        action = self.action[t]
        action[...] = step[:, self.programs.env_action].reshape(action.shape)

    def store_previous(self) -> None:
        """Store this step as the one before the next step. On padding, the last valid one stays."""
        for stored, new in zip(self.previous, (self.packed[..., self.programs.observed_action], self.reward), strict=False):
            stored[self.t + 1] = stored[self.t]
            valid = self.valid[self.t]
            stored[self.t + 1][valid] = new[self.t][valid]

    def restore_memory(self) -> None:
        """Act again on the memory before this step: lost environments, now invalid, leave theirs unchanged."""
        self.memory = self.memory_before
        _, self.memory = self.programs.act(self.size, *self._acting(self.t))

    def bootstrap(self) -> None:
        """Store the values of the final observations of episodes that were truncated in this step."""
        values = np.asarray(self.programs.final_value(self.size, *self._final()))
        self.bootstrap_value[self.t] = np.where(self.truncated[self.t], values, 0.0)

    def compile(self) -> None:
        """Compile what the other methods call."""
        self.programs.act.program(self.size, *self._acting(0))
        self.programs.final_value.program(self.size, *self._final())
        if self.programs.burn_in:
            self.programs.run_burn_in.program(self.size, *self._burn_in())

    def _acting(self, t: int) -> tuple[Any, ...]:
        observation, noise = tuple([x[t] for x in self.observation]), tuple([x[t] for x in self.noise])
        flags = (self.episode_start[t], self.valid[t]) if self.programs.reads_flags else (None, None)
        return self.policy, observation, noise, self.memory, *flags

    def _final(self) -> tuple[Any, ...]:
        return self.policy, (*self.final, *(x[self.t + 1] for x in self.previous)), self.memory

    def _burn_in(self) -> tuple[Any, ...]:
        return self.policy, self.stored[0], self.burn_in_rows


class GymnasiumCollector:
    """Steps Gymnasium environments with a policy.

    Environments cannot be saved. After ``begin`` the next rollout resets them, with seeds from the key of the given state,
    so that two runs from one state are equal.

    ``part`` has the numbers of its environments if others are collected elsewhere, for example by other ``peers``. Seeds and
    noise of an environment depend on its number, and not on the part.
    """

    def __init__(
        self,
        config: Config,
        env: GymnasiumEnvironment,
        programs: GymnasiumPrograms | None = None,
        part: range | None = None,
        peers: Peers = ALONE,
    ):
        self.part = part or range(config.env.num_envs)
        numbered = dataclasses.replace(env, spec=dataclasses.replace(env.spec, first_env=self.part.start))
        self.config, self.env, self.peers = config, env, peers
        self.programs = programs or GymnasiumPrograms(config, env)
        num_steps = config.ppo.num_steps + self.programs.burn_in
        options = vector_options(config)
        self.environments = LazyVectorEnvironment(numbered, options, len(self.part), num_steps, "to train on")
        self.episodes = EpisodeTally(len(self.part))
        self._running: tuple[_Steps, list[_Group]] | None = None
        """What the next rollout continues; None: the environments have to be reset."""

    def init(self, key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> TrainState:
        """The state before the first step."""
        return self.programs.init(key, hyperparameters)

    def begin(self) -> None:
        """Have the next rollout begin with new episodes and empty memories."""
        self._running = None

    def prepare(self, state: TrainState) -> None:
        """Make the environments and compile everything."""
        rollout, compile_all = self.example(on_one_device(state.learner.policy), state.collector)
        rollout = joined(rollout, self.programs.mesh)
        together(compile_all, lambda: self.programs.learn.program(0, state.learner, state.healthy, rollout))

    def example(self, policy: ActorCritic, state: GymnasiumCollectorState) -> tuple[Rollout, Callable[[], None]]:
        """Make the environments. Returns a rollout of zeros, and a function that compiles what ``collect`` calls."""
        steps, groups = self._empty(policy)
        packed, noise, _ = self._begin(policy, state)
        for group in groups:
            group.policy, group.noise = packed, [x[:, group.part] for x in noise]
            group.stored *= self.config.ppo.num_steps // self.programs.sequence_length
        arguments = self._rollout_arguments(packed, steps, groups)

        def compile_all() -> None:
            for group in groups:
                group.compile()
            self.programs.rollout.program(len(groups), *arguments)

        shapes = self.programs.rollout.shapes(*arguments)
        return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes), compile_all

    def collect(
        self, policy: ActorCritic, state: GymnasiumCollectorState, timing: Timing | None = None
    ) -> tuple[GymnasiumCollectorState, Rollout, dict[str, float]]:
        """Take ``num_steps`` steps of all environments. Their seconds and those of the policy are added to ``timing``.

        Returns:
            The next state, the rollout, and metrics of the episodes that finished in it.
        """
        vector_env, policy, timing = self.environments.open(), on_one_device(policy), timing or Timing()
        (steps, groups), self._running = self._running or self._reset(policy, state), None
        packed, noise, key = self._begin(policy, state)
        for group in groups:
            group.begin(packed, noise)
            self._act(vector_env, group, 0, timing)
        running = [group.index for group in groups]
        while running:  # the policy does not change, so the order of the groups does not matter
            started = time.perf_counter()
            group = groups[vector_env.ready(running)]
            t, restarts = group.t, vector_env.restarts
            has_truncated = vector_env.receive(steps.burn_in + t, group.index)
            received = time.perf_counter()
            timing.environment += received - started
            group.store_previous()
            if vector_env.restarts != restarts and self.programs.is_recurrent:
                group.restore_memory()
            if has_truncated:
                group.bootstrap()
            timing.policy += time.perf_counter() - received
            if t + 1 < self.config.ppo.num_steps:
                self._act(vector_env, group, t + 1, timing)
            else:
                running.remove(group.index)
        # Ready before the buffer is filled again: an accelerator may still read it.
        rollout = jax.block_until_ready(self.programs.rollout(len(groups), *self._rollout_arguments(packed, steps, groups)))
        self.episodes.finished = self._of_all_processes(self.episodes.add(steps.buffer))
        steps.go_on()
        self._running = steps, groups
        return GymnasiumCollectorState(key), rollout, self.episodes.metrics(self.episodes.finished)

    def _begin(
        self, policy: ActorCritic, state: GymnasiumCollectorState
    ) -> tuple[PackedPolicy, list[np.ndarray], Key[Array, ""]]:
        """The packed policy, the noise of the environments, and the next key."""
        packed, noise, key = self.programs.begin(0, policy, state.key)
        return packed, [np.asarray(x)[:, self.part.start : self.part.stop] for x in jax.tree.leaves(noise)], key

    def _act(self, vector_env: VectorEnvironment, group: _Group, t: int, timing: Timing) -> None:
        """Act in step ``t``, and let the environments begin it."""
        started = time.perf_counter()
        group.act(t)
        acted = time.perf_counter()
        vector_env.send(self.programs.burn_in + t, group.index)
        timing.policy += acted - started
        timing.environment += time.perf_counter() - acted

    def _rollout_arguments(self, policy: PackedPolicy, steps: _Steps, groups: list[_Group]) -> tuple[Any, ...]:
        """The arguments of ``programs.rollout``."""
        count = self.config.ppo.num_steps // self.programs.sequence_length
        memories = tuple(zip(*(group.stored[:count] for group in groups), strict=True))
        return policy, steps.rows, steps.packed, steps.results(), memories, tuple(group.memory for group in groups)

    def _of_all_processes(self, finished: list[Episode]) -> list[Episode]:
        """The episodes that finished in the environments of all processes."""
        numbered = [episode._replace(env=self.part[episode.env]) for episode in finished]
        of_all = self.peers.agree(numbered, "the episodes of a rollout")
        return [Episode(*fields) for part in of_all for fields in part]

    def _reset(self, policy: ActorCritic, state: GymnasiumCollectorState) -> tuple[_Steps, list[_Group]]:
        """Reset all environments, the memories and the episode statistics."""
        seed = np.random.SeedSequence(np.asarray(jax.random.key_data(state.key)).tolist()).generate_state(1)
        self.environments.reset(int(seed[0]))
        self.episodes.begin(bool(self.config.env.stagger_steps))
        steps, groups = self._empty(policy)
        steps.begin()
        return steps, groups

    def _empty(self, policy: ActorCritic) -> tuple[_Steps, list[_Group]]:
        """A buffer, and groups with empty memories."""
        vector_env = self.environments.open()
        steps = _Steps(vector_env, self.programs)
        memories = [policy.init_memory(len(columns)) for columns in vector_env.groups]
        return steps, [_Group(g, columns, steps, memories[g]) for g, columns in enumerate(vector_env.groups)]
