"""Collects rollouts of Gymnasium environments. The next rollout starts where the last one ended."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from proximo.collect.devices import on_one_device
from proximo.collect.environment import LazyVectorEnvironment, vector_options
from proximo.collect.episode_tally import Episode, EpisodeTally
from proximo.collect.gymnasium_programs import Collected, GymnasiumPrograms, PackedPolicy, Rows
from proximo.config import Config
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.vector_environment import VectorEnvironment
from proximo.networks import ActorCritic
from proximo.processes.peers import ALONE, Peers
from proximo.types import GymnasiumCollectorState, Rollout

Collection = tuple[GymnasiumCollectorState, Rollout, dict[str, float]]
"""The next state, a rollout, and metrics of the episodes that finished in it."""


class Timing:
    """Seconds since it was made, by what they were spent on."""

    def __init__(self) -> None:
        self.environment = self.policy = self.update = 0.0
        self._began = self._last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last call."""
        last, self._last = self._last, time.perf_counter()
        return self._last - last

    def shares(self) -> dict[str, float]:
        """The metrics ``time/share_…``, which sum to 1."""
        seconds, names = time.perf_counter() - self._began, ("environment", "policy", "update")
        shares = {f"time/share_{name}": getattr(self, name) / seconds for name in names}
        return {**shares, "time/share_rest": max(0.0, 1.0 - sum(shares.values()))}


class _Group:
    """A group of environments, which steps at its own pace: its columns of the rollout buffer, what the
    collector adds to them (packed steps, bootstrap values, the previous action and reward), and its memory.
    The buffer has B + T steps. Its first B + 1 rows are the last rows of the previous rollout: the burn-in,
    and the row of the first step. Views are made once, because this takes as long as a step of a small
    environment."""

    def __init__(self, index: int, vector_env: VectorEnvironment, programs: GymnasiumPrograms, policy: ActorCritic):
        columns, self.index, self.programs = vector_env.groups[index], index, programs
        self.size, self.part = len(columns), slice(columns.start, columns.stop)
        whole = vector_env.buffer.columns(columns)
        self.buffer = whole.since(programs.burn_in)
        steps = self.buffer.reward.shape
        self.packed = np.zeros((*steps, programs.columns), programs.dtype)
        self.bootstrap_value = jax.tree.map(np.zeros_like, programs.value(self.packed))
        observation = whole.observation
        if programs.observes_previous:  # the last valid step before each row
            examples = self.packed[0][:, programs.observed_action], self.buffer.reward[0]
            observation += tuple(np.zeros((len(whole.valid), *x.shape), x.dtype) for x in examples)
        self.rows: Rows = (observation, whole.episode_start, whole.valid)
        self.burn_in: Rows = jax.tree.map(lambda x: x[: programs.burn_in], self.rows)
        self.observation = [x[programs.burn_in :] for x in observation]
        self.previous = self.observation[len(whole.observation) :]
        self.t = 0
        """The step that it takes now."""
        self.memory = self.memory_before = policy.init_memory(self.size)
        """After and before the last step."""
        self.num_sequences = steps[0] // programs.sequence_length
        self.stored = [self.memory] * self.num_sequences
        """The memories before its sequences or their burn-in, whose last one belongs to the next rollout."""

    def after_reset(self) -> None:
        """A reset has written into row 0. No step was taken before it."""
        front = self.programs.burn_in + 1
        for x in jax.tree.leaves(self.rows):
            x[-1] = x[0]
            x[-front:-1] = 0

    def begin(self, policy: PackedPolicy, noise: Sequence[Any]) -> None:
        """Begin a rollout with the last rows of the previous one, this policy, and the random numbers of all environments, T N ...."""
        front = self.programs.burn_in + 1
        for x in jax.tree.leaves(self.rows):
            x[:front] = x[-front:]
        self.buffer.clear()
        jax.tree.map(lambda x: x.fill(0), self.bootstrap_value)
        self.policy, self.noise = policy, [x[:, self.part] for x in noise]
        self.stored = self.stored[-1:] if self.programs.burn_in else []
        if self.programs.burn_in:  # with the policy that acts in this rollout, as the learner does it
            self.memory = self.programs.run_burn_in(self.size, policy, self.stored[0], self.burn_in)

    def act(self, t: int) -> None:
        if (t + self.programs.burn_in) % self.programs.sequence_length == 0:
            self.stored.append(self.memory)
        self.t, self.memory_before = t, self.memory
        packed, self.memory = self._acted()
        step = self.packed[t] = np.asarray(packed)
        action = self.buffer.action[t]
        action[...] = step[:, self.programs.env_action].reshape(action.shape)

    def restore_memory(self) -> None:
        """Act again on the memory before this step: lost environments, now invalid, leave theirs as it is."""
        _, self.memory = self._acted()

    def _acted(self) -> tuple[Any, Any]:
        t = self.t
        observation, noise = tuple([x[t] for x in self.observation]), tuple([x[t] for x in self.noise])
        flags = (self.buffer.episode_start[t], self.buffer.valid[t]) if self.programs.reads_flags else (None, None)
        return self.programs.act(self.size, self.policy, observation, noise, self.memory_before, *flags)

    def store_previous(self) -> None:
        """Store this step as the previous step of the next one. On padding, the last valid step stays."""
        t, valid = self.t, self.buffer.valid[self.t]
        step = self.packed[t][:, self.programs.observed_action], self.buffer.reward[t]
        for stored, new in zip(self.previous, step, strict=False):
            stored[t + 1] = stored[t]
            stored[t + 1][valid] = new[valid]

    def bootstrap(self) -> None:
        """Store the values of the final observations of episodes that were truncated in this step."""
        final = (*self.buffer.final_observation, *(x[self.t + 1] for x in self.previous))
        values, truncated = self.programs.final_value(self.size, self.policy, final, self.memory), self.buffer.truncated[self.t]
        for stored, value in zip(*map(jax.tree.leaves, (self.bootstrap_value, values)), strict=True):
            stored[self.t] = np.where(truncated, np.asarray(value), 0.0)

    def results(self) -> dict[str, np.ndarray]:
        """The fields of a ``Rollout`` that are results of steps, T n. A lost life is a termination for the
        learner. An environment that was lost in step t leaves padding. Its episode is truncated before it,
        with the value of step t."""
        buffer, bootstrap_value = self.buffer, jax.tree.map(np.copy, self.bootstrap_value)
        terminated, truncated = buffer.terminated | buffer.life_lost, buffer.truncated.copy()
        for t, i in np.argwhere(buffer.lost):
            truncated[t, i] = True  # restarts the running return that scales rewards
            has_ended = terminated[t - 1, i] or truncated[t - 1, i] or buffer.episode_start[t, i]
            if t and buffer.valid[t - 1, i] and not has_ended:
                truncated[t - 1, i] = True
                for stored, value in zip(*map(jax.tree.leaves, (bootstrap_value, self.programs.value(self.packed))), strict=True):
                    stored[t - 1, i] = value[t, i]
        reward = buffer.reward.copy()  # the program may return what it does not change
        return {"reward": reward, "terminated": terminated, "truncated": truncated, "bootstrap_value": bootstrap_value}

    def collected(self) -> Collected:
        return Collected(self.rows, self.packed, self.results(), [*self.stored[: self.num_sequences], self.memory])


class GymnasiumCollector:
    """Steps Gymnasium environments with a policy. Environments cannot be saved. After ``begin`` the next
    rollout resets them, with seeds from the key of the given state, so that two runs from one state are
    equal. ``part`` has the numbers of its environments if others are collected elsewhere, for example by
    other ``peers``. Seeds and noise of an environment depend on its number, and not on the part."""

    def __init__(
        self,
        config: Config,
        env: GymnasiumEnvironment,
        programs: GymnasiumPrograms | None = None,
        part: range | None = None,
        peers: Peers = ALONE,
    ):
        self.part = part or range(config.env.num_envs)
        self.config, self.env, self.peers = config, env, peers
        self.programs = programs or GymnasiumPrograms(config, env)
        self.init = self.programs.init
        num_steps = config.ppo.num_steps + self.programs.burn_in
        self.environments = LazyVectorEnvironment(env, vector_options(config), self.part, num_steps, "to train on")
        self.episodes, self.timing = EpisodeTally(len(self.part), self.part.start, env.num_agents), Timing()
        self._running: list[_Group] = []
        """The groups whose episodes the next rollout continues; empty: the environments have to be reset."""

    def begin(self) -> None:
        """Have the next rollout begin with new episodes and empty memories."""
        self._running = []

    def example(self, policy: ActorCritic, state: GymnasiumCollectorState) -> tuple[Rollout, Callable[[], None]]:
        """Make the environments. Returns a rollout of zeros, and a function that acts once, and so compiles
        what ``collect`` calls."""
        groups = self._groups(policy)
        packed, noise, _ = self._begin(policy, state)
        collected = [group.collected() for group in groups]

        def compile_all() -> None:
            for group in groups:
                group.begin(packed, noise)
                group.act(0)
                group.bootstrap()
            self.programs.rollout.program(len(groups), packed, collected)

        shapes = self.programs.rollout.shapes(packed, collected)
        return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes), compile_all

    def collect(self, policy: ActorCritic, state: GymnasiumCollectorState) -> Collection:
        """Take ``num_steps`` steps of all environments. Adds their seconds and the policy's to ``timing``."""
        vector_env, policy = self.environments.open(), on_one_device(policy)
        timing, burn_in, num_steps = self.timing, self.programs.burn_in, self.config.ppo.num_steps
        groups, self._running = self._running or self._reset(policy, state), []
        packed, noise, key = self._begin(policy, state)

        def act(group: _Group, t: int) -> None:
            group.act(t)
            timing.policy += timing.lap()
            vector_env.send(burn_in + t, group.index)
            timing.environment += timing.lap()

        timing.lap()
        for group in groups:
            group.begin(packed, noise)
            act(group, 0)
        running = [group.index for group in groups]
        while running:  # the policy does not change, so the order of the groups does not matter
            group, restarts = groups[vector_env.ready(running)], vector_env.restarts
            has_truncated = vector_env.receive(burn_in + group.t, group.index)
            timing.environment += timing.lap()
            if self.programs.observes_previous:
                group.store_previous()
            if vector_env.restarts != restarts and self.programs.is_recurrent:
                group.restore_memory()
            if has_truncated:
                group.bootstrap()
            if group.t + 1 < num_steps:
                act(group, group.t + 1)
            else:
                timing.policy += timing.lap()
                running.remove(group.index)
        # Ready before the buffer is filled again: an accelerator may still read it.
        collected = [group.collected() for group in groups]
        rollout = jax.block_until_ready(self.programs.rollout(len(groups), packed, collected))
        finished = self.episodes.add(vector_env.buffer.since(burn_in))
        of_all = self.peers.agree(finished, "the episodes of a rollout")
        self.episodes.finished = [Episode(*fields) for part in of_all for fields in part]
        self._running = groups
        return GymnasiumCollectorState(key), rollout, self.episodes.metrics()

    def _begin(
        self, policy: ActorCritic, state: GymnasiumCollectorState
    ) -> tuple[PackedPolicy, list[np.ndarray], Key[Array, ""]]:
        packed, noise, key = self.programs.begin(0, policy, state.key)
        columns = slice(self.part.start * self.env.num_agents, self.part.stop * self.env.num_agents)
        return packed, [np.asarray(x)[:, columns] for x in jax.tree.leaves(noise)], key

    def _reset(self, policy: ActorCritic, state: GymnasiumCollectorState) -> list[_Group]:
        seed = np.random.SeedSequence(np.asarray(jax.random.key_data(state.key)).tolist()).generate_state(1)
        self.environments.reset(int(seed[0]))
        self.episodes.begin(bool(self.config.env.stagger_steps))
        groups = self._groups(policy)
        for group in groups:
            group.after_reset()
        return groups

    def _groups(self, policy: ActorCritic) -> list[_Group]:
        """The groups of environments, with empty memories."""
        vector_env = self.environments.open()
        return [_Group(index, vector_env, self.programs, policy) for index in range(len(vector_env.groups))]
