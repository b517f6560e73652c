"""The compiled functions for Gymnasium environments: acting, final values, learning. They are pure, and compiled once for each
``Config``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Key, PyTree

from proximo import ppo
from proximo.collect.compiled_function import CompiledFunction
from proximo.collect.devices import divided, joined, placed
from proximo.collect.gymnasium_rollout import BurnInSteps, GymnasiumRollout, PackedPolicy, PreviousSteps, StepColumns
from proximo.collect.learning import fresh_learner, learn, policy_shapes
from proximo.config import Config
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.observations import unflatten
from proximo.errors import EnvError
from proximo.networks import ActorCritic
from proximo.networks.recurrent.protocol import select
from proximo.ppo import inspection
from proximo.ppo.hyperparameters import Hyperparameters
from proximo.ppo.minibatches import run_burn_in
from proximo.spaces import Discrete, MultiDiscrete, zeros
from proximo.types import BurnIn, GymnasiumCollectorState, Memory, Observation, Previous, Rollout, TrainState

T = TypeVar("T")
Leaves = tuple[Any, ...]
"""The arrays of an observation or of noise."""
LARGE = 2**12
"""An array of so many numbers or more is a separate argument, which takes about 2 µs. Copying it out of the vector takes longer."""
MAX_EXACT = 2**24


class PackedMetrics(eqx.Module):
    """The metrics of an update as one array: each array that is read by itself costs a transfer."""

    values: Float[Array, " M"]
    names: tuple[str, ...] = eqx.field(static=True)

    def read(self) -> dict[str, float]:
        """The metrics by name."""
        return dict(zip(self.names, np.asarray(self.values).tolist(), strict=True))


class GymnasiumPrograms:
    """The functions for one ``Config``. Each is compiled when it is first called, and again for other shapes. ``learn`` computes on the
    devices of ``mesh``, everything else on one.

    The policy is passed as one flat vector and its large arrays, and a step returns one array: each argument and each result
    of a compiled call costs as much as the arithmetic of a small network (docs/decisions/0006-gymnasium-collector.md).
    """

    def __init__(self, config: Config, env: GymnasiumEnvironment, mesh: Mesh | None = None):
        self.config, self.space, self.mesh = config, env.observation_space, mesh
        policy = policy_shapes(env, config)
        leaves, self._tree = jax.tree.flatten(policy)
        # Only floating-point arrays are part of the vector: integers, which a custom network may have, would be rounded.
        self._is_large = [leaf.size >= LARGE or not jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
        vector, self._unravel = eqx.filter_eval_shape(lambda policy: ravel_pytree(self._small(jax.tree.leaves(policy))), policy)
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
        env_action, self.action = jax.eval_shape(self._example_action, policy)
        self.columns = StepColumns.of(env_action.shape, self.action.shape)
        _check_starts(env.action_space, env.id)
        self.fresh = jax.jit(lambda key, hyperparameters: fresh_learner(key, env, config, hyperparameters))
        """``fresh_learner`` compiled as one program. Without jit, it takes three times as long and 70 MB."""
        self.start = CompiledFunction(lambda seed, hyperparameters: self.init(jax.random.key(seed), hyperparameters), brief=True)

        def compiled(function: Any) -> CompiledFunction:
            return CompiledFunction(jax.default_matmul_precision(config.run.matmul_precision)(function))

        self.begin, self.run_burn_in = compiled(self._begin), compiled(self._run_burn_in)
        self.act, self.final_value = compiled(self._act), compiled(self._final_value)
        self.learn, self.inspect = compiled(divided(self._learn, mesh)), compiled(self._inspect)

    def init(self, key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> TrainState:
        """The state before the first step."""
        learner, key_collector = self.fresh(key, hyperparameters or ppo.make_hyperparameters(self.config.ppo))
        return TrainState(learner, GymnasiumCollectorState(key_collector), jnp.array(True))

    def policy_of(self, arrays: Sequence[Any]) -> ActorCritic:
        """The policy whose arrays are ``arrays``, in the order of ``jax.tree.leaves``."""
        return jax.tree.unflatten(self._tree, [jnp.asarray(array) for array in arrays])

    def placed(self, tree: T) -> T:
        """A learner or a rollout on the devices that ``learn`` computes on. What is there already is not copied."""
        return placed(tree, self.mesh)

    def joined(self, rollout: GymnasiumRollout) -> GymnasiumRollout:
        """A rollout on the devices that ``learn`` computes on. Of several processes, each gives the part of its environments."""
        return joined(rollout, self.mesh)

    def _example_action(self, policy: ActorCritic) -> tuple[Array, Array]:
        """One action as the environment takes it, and as it is sampled."""
        one = jnp.ones(1, bool)
        noise = policy.actor.noise(jax.random.key(0), (1,))
        observation = policy.with_previous_step(
            jax.tree.map(jnp.asarray, zeros(self.space, (1,))), one, policy.no_previous_step(1)
        )
        _, action, _, _ = policy.act(policy.init_memory(1), observation, one, one, noise)
        return policy.to_space(action)[0], action[0]

    def _small(self, leaves: Sequence[Array]) -> list[Array]:
        return [leaf for leaf, large in zip(leaves, self._is_large, strict=True) if not large]

    def _pack(self, policy: ActorCritic) -> PackedPolicy:
        leaves = jax.tree.leaves(policy)
        return ravel_pytree(self._small(leaves))[0], *(x for x, large in zip(leaves, self._is_large, strict=True) if large)

    def _unpack(self, packed: PackedPolicy) -> ActorCritic:
        small, large = iter(self._unravel(packed[0])), iter(packed[1:])
        return jax.tree.unflatten(self._tree, [next(large if is_large else small) for is_large in self._is_large])

    def _begin(self, policy: ActorCritic, key: Key[Array, ""]) -> tuple[PackedPolicy, PyTree, Key[Array, ""]]:
        """The packed policy, the noise of a rollout (T N ...), the next key."""
        key, key_noise = jax.random.split(key)
        shape = (self.config.ppo.num_steps, self.config.env.num_envs)
        return self._pack(policy), policy.actor.noise(key_noise, shape), key

    def _sampled(self, packed: Array) -> Array:
        """The sampled actions in packed steps."""
        return packed[..., self.columns.action].reshape((*packed.shape[:-1], *self.action.shape)).astype(self.action.dtype)

    def _observed(
        self, policy: ActorCritic, observation: Leaves, episode_start: Array, previous: PreviousSteps | None
    ) -> Observation:
        """What the policy reads, with the previous action and reward if it observes them."""
        raw = unflatten(self.space, observation)
        if previous is None:
            return raw
        exists = ~jnp.isnan(previous.packed[..., :1])  # NaN before the first step: no action was taken, not even action 0
        action = jnp.where(exists, policy.actor.features(self._sampled(previous.packed)), 0.0)
        return policy.with_previous_step(raw, episode_start, Previous(action, previous.reward.astype(float)))

    def _burn_in_steps(self, policy: ActorCritic, steps: BurnInSteps) -> BurnIn:
        observed = self._observed(policy, steps.observation, steps.episode_start, steps.previous)
        return BurnIn(_without_padding(observed, steps.valid), steps.episode_start, steps.valid)

    def _run_burn_in(self, packed: PackedPolicy, memory: Memory, steps: BurnInSteps) -> Memory:
        """The memory of a group after its burn-in steps, computed with the policy that acts next."""
        policy = self._unpack(packed)
        return run_burn_in(policy, memory, self._burn_in_steps(policy, steps))

    def _act(
        self,
        packed: PackedPolicy,
        observation: Leaves,
        noise: Leaves,
        memory: Memory,
        episode_start: Array | None,
        valid: Array | None,
        previous: PreviousSteps | None,
    ) -> tuple[Float[Array, "n columns"], Memory]:
        """A step of a group of ``n`` environments: the packed step, and the memory after it. The flags are None if nothing
        depends on them."""
        policy = self._unpack(packed)
        episode_start = jnp.zeros(observation[0].shape[0], bool) if episode_start is None else episode_start
        valid = jnp.ones_like(episode_start) if valid is None else valid
        observed, noises = self._observed(policy, observation, episode_start, previous), jax.tree.unflatten(self._noise, noise)
        memory, action, log_prob, value = policy.act(memory, observed, episode_start, valid, noises)
        columns = (policy.to_space(action), action, log_prob, value)
        return jnp.concatenate([x.reshape(x.shape[0], -1).astype(self.dtype) for x in columns], axis=1), memory

    def _final_value(
        self, packed: PackedPolicy, observation: Leaves, memory: Memory, previous: PreviousSteps | None
    ) -> Float[Array, " n"]:
        """The value of final observations, read with the memory after the step."""
        policy, never = self._unpack(packed), jnp.zeros(observation[0].shape[0], bool)
        return policy.value(memory, self._observed(policy, observation, never, previous), never)

    def _learn(
        self, state: ppo.LearnerState, healthy: Bool[Array, ""], rollout: GymnasiumRollout
    ) -> tuple[ppo.LearnerState, Bool[Array, ""], PackedMetrics]:
        """Learn from a rollout. An update with NaN or infinity, and all later ones, leave the learner unchanged."""
        learner, healthy, metrics = learn(state, healthy, self._rollout(rollout))
        return learner, healthy, PackedMetrics(jnp.stack(list(metrics.values())), tuple(metrics))

    def _inspect(self, before: ppo.LearnerState, learned: ActorCritic, rollout: GymnasiumRollout) -> dict[str, Any]:
        """The quantities of a rollout and of the policy that has learned from it, for histograms."""
        whole = self._rollout(rollout)
        return {**inspection.learned_from(before, whole), "ratios": inspection.ratios(before, learned, whole)}

    def _rollout(self, given: GymnasiumRollout) -> Rollout:
        """The rollout as the learner takes it."""
        policy, episode_start = self._unpack(given.policy), given.episode_start
        observed = self._observed(policy, given.observation, episode_start, given.previous)
        observed = _without_padding(observed, given.valid)
        last_observation = jax.tree.map(lambda leaf: leaf[-1], observed)
        return Rollout(
            observation=jax.tree.map(lambda leaf: leaf[:-1], observed),
            episode_start=episode_start[:-1],
            action=self._sampled(given.packed),
            log_prob=given.packed[..., self.columns.log_prob],
            value=given.packed[..., self.columns.value],
            reward=given.reward.astype(given.packed.dtype),
            terminated=given.terminated,
            truncated=given.truncated,
            bootstrap_value=given.bootstrap_value,
            valid=given.valid[:-1],
            memory=given.memory,
            last_observation=last_observation,
            last_episode_start=episode_start[-1],
            last_memory=given.last_memory,
            last_value=policy.value(given.last_memory, last_observation, episode_start[-1]),
            burn_in_steps=given.burn_in_steps and self._burn_in_steps(policy, given.burn_in_steps),
        )


def _without_padding(observed: Observation, valid: Array) -> Observation:
    """``observed`` with zeros on padding. There, an observation is the last one of its episode, which may be NaN: no policy acts on it, but
    NaN would enter gradients, as 0 · NaN."""
    return jax.tree.map(lambda x: select(valid, x, jnp.zeros_like(x)) if jnp.issubdtype(x.dtype, jnp.floating) else x, observed)


def _check_starts(space: Any, env_id: str) -> None:
    """Raise ``EnvError`` if actions, which travel as float32, would be rounded."""
    if isinstance(space, Discrete | MultiDiscrete):
        reached = np.abs(np.add(space.start, space.n if isinstance(space, Discrete) else space.nvec)).max()
        if max(reached, np.abs(space.start).max()) > MAX_EXACT:
            raise EnvError(
                f"The action space {space} of {env_id} reaches beyond ±2²⁴, where float32 rounds integers: declare a space that starts at 0, and add the offset in step."
            )
