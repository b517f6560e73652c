"""The compiled functions for Gymnasium environments: acting, from the buffer to a ``Rollout``, learning."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Key, PyTree

from proximo import ppo
from proximo.collect.devices import divided
from proximo.collect.learning import fresh_learner, inspect, learn, policy_shapes
from proximo.collect.program_cache import CompiledFunction
from proximo.config import Config
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.errors import EnvError
from proximo.networks import ActorCritic
from proximo.ppo.hyperparameters import Hyperparameters
from proximo.ppo.minibatches import run_burn_in
from proximo.spaces import ActionSpace, Discrete, MultiDiscrete, components, leaves, unflatten, zeros
from proximo.types import BurnIn, GymnasiumCollectorState, Memory, Observation, Previous, Rollout, TrainState, Value, select

PackedPolicy = tuple[Array, ...]
"""The small arrays of a policy as one vector, then each large array."""
Leaves = tuple[Any, ...]
"""The arrays of an observation, with the previous action and reward if they are observed; or of noise."""
Rows = tuple[Leaves, Any, Any]
"""Observation, ``episode_start`` and ``valid`` of several rows of a buffer, T N ...."""
LARGE = 2**12
"""An array of so many numbers is a separate argument, which takes 2 µs: less than copying it."""


class Columns(NamedTuple):
    """What the policy returns in a step, N ...; packed, these are the columns of one array."""

    env_action: Array
    """As the environment takes it."""
    action: Array
    """As it was sampled."""
    observed_action: Array
    """As the policy observes it in the next step; no columns if the policy does not observe it."""
    log_prob: Array
    value: Value


class Collected(NamedTuple):
    """What a group of environments has collected."""

    rows: Rows
    """The rows of its buffer."""
    steps: Any
    """The packed steps, T N columns."""
    results: dict[str, Any]
    """The results of the steps, as fields of ``Rollout``."""
    memories: Sequence[Memory]
    """The memories before each sequence or its burn-in, and after the last step."""


class PackedMetrics(eqx.Module):
    """The metrics of an update as one array: each array that is read by itself costs a transfer."""

    values: Float[Array, " M"]
    names: tuple[str, ...] = eqx.field(static=True)


class GymnasiumPrograms:
    """The functions for one ``Config``. Each is compiled when it is first called, and again for other
    shapes. ``learn`` computes on the devices of ``mesh``, everything else on one. The policy is passed as
    one flat vector and its large arrays, and a step returns one array: each argument and result of a
    compiled call costs as much as the arithmetic of a small network
    (docs/decisions/0006-gymnasium-collector.md)."""

    def __init__(self, config: Config, env: GymnasiumEnvironment, mesh: Mesh | None = None):
        self.config, self.space, self.num_agents, self.mesh = config, env.observation_space, env.num_agents, mesh
        _check_starts(env.action_space, env.id)
        self.policy = policy = policy_shapes(env, config)
        """Its shapes."""
        # Integers, which a custom network may have, would be rounded in the vector.
        self._is_small = jax.tree.map(lambda x: x.size < LARGE and jnp.issubdtype(x.dtype, jnp.floating), policy)
        small, large = eqx.partition(policy, self._is_small)
        self._large = jax.tree.structure(large)
        vector, self._unravel = eqx.filter_eval_shape(ravel_pytree, small)
        self.dtype = vector.dtype
        self.is_recurrent: bool = policy.is_recurrent
        self.sequence_length = config.sequence_length if self.is_recurrent else config.ppo.num_steps
        """Steps between two memories that are stored."""
        self.burn_in = config.ppo.burn_in
        self.observes_previous = bool(policy.observed_previous)
        """Whether the policy observes the previous action or reward."""
        self.reads_flags = self.is_recurrent or self.observes_previous
        """Whether the policy depends on ``episode_start`` and ``valid``."""
        self._noise = jax.tree.structure(jax.eval_shape(lambda: policy.actor.noise(jax.random.key(0), (1,))))
        columns = jax.eval_shape(self._example, policy)
        self.action = columns.action
        starts = np.cumsum([0, *(math.prod(x.shape[1:]) for x in columns[:3])]).tolist()
        self.env_action, self._sampled, self.observed_action = (slice(*pair) for pair in itertools.pairwise(starts))
        """Where a packed step has these ``Columns``. One column of the log-probability and those of the value follow."""
        self._log_prob, self._value = starts[-1], jax.tree.structure(columns.value)
        self.columns = self._log_prob + 1 + self._value.num_leaves

        def init(key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> TrainState:
            learner, key_collector = fresh_learner(key, env, config, hyperparameters)
            return TrainState(learner, GymnasiumCollectorState(key_collector), jnp.array(True))

        self.init = jax.jit(init)
        """``init(key, hyperparameters=None)``: the state before the first step."""
        self.start = CompiledFunction(lambda seed, hyperparameters: init(jax.random.key(seed), hyperparameters), brief=True)

        def compiled(function: Any) -> CompiledFunction:
            return CompiledFunction(jax.default_matmul_precision(config.run.matmul_precision)(function))

        def of_packed(function: Any) -> CompiledFunction:
            return compiled(lambda packed, *arguments: function(self._unpack(packed), *arguments))

        self.begin, self.act, self.final_value = compiled(self._begin), of_packed(self._act), of_packed(self._final_value)
        self.run_burn_in, self.rollout = of_packed(self._run_burn_in), of_packed(self._rollout)
        self.learn, self.inspect = compiled(divided(_learn, mesh)), compiled(inspect)

    def _example(self, policy: ActorCritic) -> Columns:
        one = jnp.ones(1, bool)
        raw = jax.tree.map(jnp.asarray, zeros(self.space, (1,)))
        observation = policy.with_previous_step(raw, one, policy.no_previous_step(1))
        noise = policy.actor.noise(jax.random.key(0), (1,))
        return self._step(policy, policy.init_memory(1), observation, one, one, noise)[0]

    def _step(self, policy: ActorCritic, memory: Memory, *arguments: Any) -> tuple[Columns, Memory]:
        memory, action, *rest = policy.act(memory, *arguments)
        observed = policy.actor.features(action) if self.observes_previous else jnp.zeros((len(action), 0))
        return Columns(policy.to_space(action), action, observed, *rest), memory

    def value(self, steps: Any) -> Any:
        """The value in packed steps, of JAX or NumPy."""
        return jax.tree.unflatten(self._value, [steps[..., i] for i in range(self._log_prob + 1, self.columns)])

    def _pack(self, policy: ActorCritic) -> PackedPolicy:
        small, large = eqx.partition(policy, self._is_small)
        return ravel_pytree(small)[0], *jax.tree.leaves(large)

    def _unpack(self, packed: PackedPolicy) -> ActorCritic:
        return eqx.combine(self._unravel(packed[0]), jax.tree.unflatten(self._large, packed[1:]))

    def _begin(self, policy: ActorCritic, key: Key[Array, ""]) -> tuple[PackedPolicy, PyTree, Key[Array, ""]]:
        """The packed policy, the noise of a rollout (T N ...), the next key."""
        key, key_noise = jax.random.split(key)
        shape = (self.config.ppo.num_steps, self.config.env.num_envs * self.num_agents)
        return self._pack(policy), policy.actor.noise(key_noise, shape), key

    def _observed(self, policy: ActorCritic, observation: Leaves, episode_start: Array) -> Observation:
        """What the policy reads, with the previous action and reward if it observes them."""
        count = len(leaves(self.space))
        raw, previous = unflatten(self.space, observation), observation[count:]
        if not previous:
            return raw
        action, reward = previous
        return policy.with_previous_step(raw, episode_start, Previous(action, reward.astype(float)))

    def _read(self, policy: ActorCritic, rows: Rows) -> tuple[Observation, Array, Array]:
        """What the policy reads in several rows: observation, ``episode_start`` and ``valid``. An
        observation on padding is 0 here: it may be NaN, which would enter gradients, as 0 · NaN."""
        observation, episode_start, valid = rows

        def without_padding(x: Array) -> Array:
            return select(valid, x, jnp.zeros_like(x)) if jnp.issubdtype(x.dtype, jnp.floating) else x

        return jax.tree.map(without_padding, self._observed(policy, observation, episode_start)), episode_start, valid

    def _run_burn_in(self, policy: ActorCritic, memory: Memory, rows: Rows) -> Memory:
        """The memory of a group after its burn-in steps, computed with the policy that acts next."""
        return run_burn_in(policy, memory, BurnIn(*self._read(policy, rows)))

    def _act(
        self, policy: ActorCritic, observation: Leaves, noise: Leaves, memory: Memory, episode_start: Any, valid: Any
    ) -> tuple[Float[Array, "n columns"], Memory]:
        """The packed step of a group, and the memory after it. The flags are None if the policy does not read them."""
        episode_start = jnp.zeros(observation[0].shape[0], bool) if episode_start is None else episode_start
        valid = jnp.ones_like(episode_start) if valid is None else valid
        observed, noises = self._observed(policy, observation, episode_start), jax.tree.unflatten(self._noise, noise)
        columns, memory = self._step(policy, memory, observed, episode_start, valid, noises)
        return jnp.concatenate([x.reshape(x.shape[0], -1).astype(self.dtype) for x in jax.tree.leaves(columns)], axis=1), memory

    def _final_value(self, policy: ActorCritic, observation: Leaves, memory: Memory) -> Value:
        """The value of final observations, read with the memory after the step."""
        never = jnp.zeros(observation[0].shape[0], bool)
        return policy.value(memory, self._observed(policy, observation, never), never)

    def _rollout(self, policy: ActorCritic, groups: Sequence[Collected]) -> Rollout:
        """The rollout of all groups. The B+T+1 rows of a buffer are burn-in, steps, and what follows."""
        stacked = [group._replace(memories=jax.tree.map(lambda *m: jnp.stack(m), *group.memories)) for group in groups]
        rows, steps, results, memories = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *stacked)
        read, start = self._read(policy, rows), self.burn_in
        burn_in, (observation, episode_start, valid), last = (
            jax.tree.map(lambda x, part=part: x[part], read) for part in (slice(start), slice(start, -1), -1)
        )
        last_memory = jax.tree.map(lambda m: m[-1], memories)
        return Rollout(
            observation=observation,
            episode_start=episode_start,
            action=steps[..., self._sampled].reshape((*steps.shape[:-1], *self.action.shape[1:])).astype(self.action.dtype),
            log_prob=steps[..., self._log_prob],
            value=self.value(steps),
            **(results | {"reward": results["reward"].astype(steps.dtype)}),
            valid=valid,
            memory=jax.tree.map(lambda m: m[:-1], memories),
            last_observation=last[0],
            last_episode_start=last[1],
            last_memory=last_memory,
            last_value=policy.value(last_memory, last[0], last[1]),
            burn_in_steps=BurnIn(*burn_in) if start else None,
        )


def _check_starts(space: ActionSpace, env_id: str) -> None:
    """Raise ``EnvError`` if actions, which travel as float32, would be rounded."""
    if isinstance(space, Discrete | MultiDiscrete):
        nvec, start = components(space)
        if np.abs([*start, *np.add(start, nvec)]).max() > 2**24:
            raise EnvError(
                f"The action space {space} of {env_id} reaches beyond ±2²⁴, where float32 rounds integers: declare a space that "
                "starts at 0, and add the offset in step."
            )


def _learn(
    state: ppo.LearnerState, healthy: Bool[Array, ""], rollout: Rollout
) -> tuple[ppo.LearnerState, Bool[Array, ""], PackedMetrics]:
    learner, healthy, metrics = learn(state, healthy, rollout)
    return learner, healthy, PackedMetrics(jnp.stack(list(metrics.values())), tuple(metrics))
