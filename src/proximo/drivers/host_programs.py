"""What the host driver computes on the device: acting, final values, learning; pure functions, compiled once for a setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Key, PyTree

from proximo import ppo
from proximo.config import Config
from proximo.drivers.learning import fresh_learner, fresh_policy, kept, learn
from proximo.envs.host.environment import HostEnvironment
from proximo.envs.host.observations import unflatten
from proximo.errors import EnvError
from proximo.networks import ActorCritic
from proximo.ppo import inspection
from proximo.ppo.batch import warm
from proximo.runtime import compile_lowered
from proximo.spaces import Box, Discrete, MultiDiscrete, zeros
from proximo.types import Memory, Metrics, Observation, Previous, Rollout, Warmup

Leaves = tuple[Any, ...]
PackedPolicy = tuple[Array, ...]
"""The small arrays of a policy as one vector, then each large one."""
Before = tuple[Any, Any]
"""Of the last valid step before a row: what was packed (NaN before the first step), and the reward."""
LARGE = 2**14
"""Copying an array of more numbers out of the vector takes longer than an argument of its own, about 2 µs."""
MOST_EXACT = 2**24


class HostPrograms:
    """The functions of one setting. Each is compiled when it is first called, and anew for other shapes.

    The policy travels as one flat vector and its large arrays, and what a step gives as one array: each argument and each result
    of a compiled call costs as much as the arithmetic of a small network (docs/decisions/0006-host-driver.md).
    """

    def __init__(self, config: Config, env: HostEnvironment):
        self.config, self.space = config, env.observation_space
        shapes = jax.eval_shape(lambda key: fresh_policy(key, env, config), jax.random.key(0))
        policy = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        leaves, self._tree = jax.tree.flatten(policy)
        # Only floating-point numbers can travel in the vector: others, in a network of the user's, would be rounded.
        self._is_large = [leaf.size > LARGE or not jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
        vector, self._unravel = ravel_pytree(self._small(leaves))
        self.dtype = vector.dtype
        self.is_recurrent: bool = policy.is_recurrent
        self.piece_length = config.sequence_length if self.is_recurrent else config.ppo.num_steps
        """Steps between two memories that are kept: those before each sequence."""
        self.burn_in = config.ppo.burn_in
        self.observes_before = bool(policy.added)
        """Whether the policy reads what it did last and what came of it."""
        self.reads_flags = self.is_recurrent or self.observes_before
        """Whether it matters which rows are ``first`` and which are ``filler``."""
        self._noise = jax.tree.structure(jax.eval_shape(lambda key: policy.actor.noise(key, (1,)), jax.random.key(0)))
        self.action_in_space, self.action = jax.eval_shape(self._example_action, policy)
        space = env.action_space
        _hold_starts(space, env.id)
        self.action_bounds = space.bounds() if isinstance(space, Box) else None
        self.fresh = jax.jit(lambda key, hyperparameters: fresh_learner(key, env, config, hyperparameters))
        """``fresh_learner`` in one program: step by step it takes three times as long, and 70 MB."""
        self.begin = _Compiled(self._begin, config)
        self.warm = _Compiled(self._warm, config)
        self.act = _Compiled(self._act, config)
        self.final_value = _Compiled(self._final_value, config)
        self.learn = _Compiled(self._learn, config)
        self.look = _Compiled(self._look, config)

    def _example_action(self, policy: ActorCritic) -> tuple[Array, Array]:
        """What the environment takes, and what is sampled, for one environment."""
        one = jnp.ones(1, bool)
        noise = policy.actor.noise(jax.random.key(0), (1,))
        observation = policy.observed(jax.tree.map(jnp.asarray, zeros(self.space, (1,))), one, policy.nothing_before(1))
        _, action, _, _ = policy.act(policy.init_memory(1), observation, one, one, noise)
        return policy.to_space(action)[0], action[0]

    @property
    def action_columns(self) -> tuple[slice, slice]:
        """Where in the packed row of a step the action for the environment lies, and where the sampled one."""
        taken = math.prod(self.action_in_space.shape)
        return slice(0, taken), slice(taken, taken + math.prod(self.action.shape))

    @property
    def packed_columns(self) -> int:
        """Numbers in the packed row of a step."""
        return self.action_columns[1].stop + 2

    def _small(self, leaves: Sequence[Array]) -> list[Array]:
        return [leaf for leaf, large in zip(leaves, self._is_large, strict=True) if not large]

    def _pack(self, policy: ActorCritic) -> PackedPolicy:
        leaves = jax.tree.leaves(policy)
        return ravel_pytree(self._small(leaves))[0], *(x for x, large in zip(leaves, self._is_large, strict=True) if large)

    def _unpack(self, packed: PackedPolicy) -> ActorCritic:
        small, large = iter(self._unravel(packed[0])), iter(packed[1:])
        return jax.tree.unflatten(self._tree, [next(large if is_large else small) for is_large in self._is_large])

    def _begin(self, policy: ActorCritic, key: Key[Array, ""]) -> tuple[PackedPolicy, PyTree, Key[Array, ""]]:
        """The packed policy, the noise of a rollout, the next key."""
        key, key_noise = jax.random.split(key)
        shape = (self.config.ppo.num_steps, self.config.env.num_envs)
        return self._pack(policy), policy.actor.noise(key_noise, shape), key

    def _observed(self, policy: ActorCritic, observation: Leaves, first: Array, before: Before | None) -> Observation:
        """What the policy reads of rows that follow on the steps ``before``."""
        own = unflatten(self.space, observation)
        if before is None:
            return own
        row, reward = before
        sampled = row[..., self.action_columns[1]].reshape((*reward.shape, *self.action.shape)).astype(self.action.dtype)
        begun = ~jnp.isnan(row[..., 0])[..., None]  # NaN before the first step: no action was taken, not even action 0
        action = jnp.where(begun, policy.actor.features(sampled), 0.0)
        return policy.observed(own, first, Previous(action, reward.astype(float)))

    def _warm(
        self, packed: PackedPolicy, memory: Memory, observation: Leaves, first: Array, valid: Array, before: Before | None
    ) -> Memory:
        """The memory of a group behind the rows that it burns in on, by the policy that is to act."""
        policy = self._unpack(packed)
        return warm(policy, memory, Warmup(self._observed(policy, observation, first, before), first, valid))

    def _act(
        self,
        packed: PackedPolicy,
        observation: Leaves,
        noise: Leaves,
        memory: Memory,
        first: Array | None,
        filler: Array | None,
        before: Before | None,
    ) -> tuple[Float[Array, "n columns"], Memory]:
        """A step of a group: for the environment, as sampled, log-probability and value side by side; the memory after it.
        Without a memory it does not matter which rows are ``first`` and which are ``filler``: None."""
        policy = self._unpack(packed)
        first = jnp.zeros(observation[0].shape[0], bool) if first is None else first
        valid = jnp.ones_like(first) if filler is None else ~filler
        observed, noises = self._observed(policy, observation, first, before), jax.tree.unflatten(self._noise, noise)
        memory, action, log_prob, value = policy.act(memory, observed, first, valid, noises)
        columns = (policy.to_space(action), action, log_prob, value)
        return jnp.concatenate([x.reshape(x.shape[0], -1).astype(self.dtype) for x in columns], axis=1), memory

    def _final_value(
        self, packed: PackedPolicy, observation: Leaves, memory: Memory, before: Before | None
    ) -> Float[Array, " n"]:
        """The value of final observations, read with the memory after the step."""
        policy, never = self._unpack(packed), jnp.zeros(observation[0].shape[0], bool)
        return policy.value(memory, self._observed(policy, observation, never, before), never)

    def _learn(
        self,
        state: ppo.LearnerState,
        healthy: Bool[Array, ""],
        packed: PackedPolicy,
        rows: dict[str, Any],
        memory: Memory,
        last_memory: Memory,
    ) -> tuple[ppo.LearnerState, Bool[Array, ""], Metrics]:
        """Learn from a rollout; from the first NaN or infinity on the state stays as it was before it."""
        learned, healthy, metrics = learn(state, healthy, self._rollout(packed, rows, memory, last_memory))
        return kept(healthy, learned, state), healthy, metrics

    def _look(
        self,
        before: ppo.LearnerState,
        learned: ActorCritic,
        packed: PackedPolicy,
        rows: dict[str, Any],
        memory: Memory,
        last_memory: Memory,
    ) -> dict[str, Any]:
        """What there is to be seen in a rollout, and in what was learned from it."""
        rollout = self._rollout(packed, rows, memory, last_memory)
        return {**inspection.learned_from(before, rollout), "ratios": inspection.ratios(before, learned, rollout)}

    def _rollout(self, packed_policy: PackedPolicy, rows: dict[str, Any], memory: Memory, last_memory: Memory) -> Rollout:
        """The rows of a slab and what was packed beside them, as the learner takes them."""
        packed, first, early = rows["packed"], rows["first"], rows["warmup"]
        policy = self._unpack(packed_policy)
        observed = self._observed(policy, rows["observation"], first, rows["before"])
        last_observation = jax.tree.map(lambda leaf: leaf[-1], observed)
        sampled = packed[..., self.action_columns[1]].reshape((*first[:-1].shape, *self.action.shape))
        return Rollout(
            observation=jax.tree.map(lambda leaf: leaf[:-1], observed),
            first=first[:-1],
            action=sampled.astype(self.action.dtype),
            log_prob=packed[..., -2],
            value=packed[..., -1],
            reward=rows["reward"].astype(packed.dtype),
            terminated=rows["terminated"],
            truncated=rows["truncated"],
            bootstrap=rows["bootstrap"],
            valid=~rows["filler"][:-1],
            memory=memory,
            last_observation=last_observation,
            last_first=first[-1],
            last_memory=last_memory,
            last_value=policy.value(last_memory, last_observation, first[-1]),
            warmup=early and Warmup(self._observed(policy, early[0], early[1], early[3]), early[1], early[2]),
        )


class _Compiled:
    """A function that is compiled for the shapes of its arguments when they first come."""

    def __init__(self, function: Callable[..., Any], config: Config):
        self._function, self._precision = function, config.run.matmul_precision
        self._programs: dict[Any, Any] = {}

    def program(self, size: int, *arguments: Any) -> Any:
        """The program for ``arguments``, found by ``size``, the only thing in which they differ."""
        if size not in self._programs:
            with jax.default_matmul_precision(self._precision):
                self._programs[size] = compile_lowered(jax.jit(self._function).lower(*arguments))
        return self._programs[size]

    def __call__(self, size: int, *arguments: Any) -> Any:
        return self.program(size, *arguments)(*arguments)


def _hold_starts(space: Any, env_id: str) -> None:
    """Raise ``EnvError`` where actions, which travel as float32, would be rounded."""
    if isinstance(space, Discrete | MultiDiscrete):
        reached = np.abs(np.add(space.start, space.n if isinstance(space, Discrete) else space.nvec)).max()
        if max(reached, np.abs(space.start).max()) > MOST_EXACT:
            raise EnvError(f"The action space {space} of {env_id} reaches beyond ±2²⁴: begin it at 0 and add the start in step.")
