"""The pytrees that travel between collectors, learner and training. Axes ``[time, env, ...]`` are written ``T N``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped, UInt32

if TYPE_CHECKING:  # a strict type checker cannot follow a PyTree
    Observation = Any
    Memory = Any
    Value = Any
else:
    Observation = PyTree[Shaped[Array, "..."]]
    Memory = PyTree[Array]
    Value = PyTree[Float[Array, "..."]]
    """One array, or with several value heads a tree of arrays."""
Metrics = dict[str, Float[Array, "..."]]
Scalar = Float[Array, ""]


class BurnIn(eqx.Module):
    """The ``B`` steps before a sequence that only update the memory; invalid before the first step of a training."""

    observation: Observation
    episode_start: Bool[Array, "B N"]
    valid: Bool[Array, "B N"]


class Previous(eqx.Module):
    """The previous action, as ``ActorHead.features`` returns it, and the unscaled reward, if the policy observes them."""

    action: Float[Array, "*batch n"]
    reward: Float[Array, "*batch"]


class Rollout(eqx.Module):
    """``T`` transitions of each of ``N`` columns, and what follows them. Both collectors return it. A column is one agent of one environment.

    ``value``, ``bootstrap_value`` and ``last_value`` are in units of the scaled reward; ``reward`` is unscaled. The learner cuts it
    into sequences of ``L`` steps: ``T / L`` contiguous pieces for each environment.

    Attributes:
        observation: T N ...: as the environment returned it, before normalization.
        episode_start: T N: the memory is reset before this observation is read.
        action: T N ...: as the distribution sampled it, before clipping, squashing or scaling to the space.
        log_prob, value: T N: by the policy that acted.
        reward: T N: unscaled.
        terminated: T N: the task is over.
        truncated: T N: a limit was reached.
        bootstrap_value: T N: value of the true final observation, computed with the memory after the step, where
            ``truncated & ~terminated``; otherwise 0.
        valid: T N: False on padding (autoreset steps, steps lost with a worker, and absent agents). Padding enters no loss and no
            statistic, and leaves the memory unchanged.
        memory: T/L N ...: the memory before the first step of every sequence, or before its burn-in.
        last_observation, last_episode_start, last_memory, last_value: N ...: the observation after the last transition,
            whether it starts an episode, the memory before it, and its value.
        burn_in_steps: the last ``B`` steps of the previous rollout, the burn-in of the first sequence; else None.
    """

    observation: Observation
    episode_start: Bool[Array, "T N"]
    action: Shaped[Array, "T N ..."]
    log_prob: Float[Array, "T N"]
    value: Value
    reward: Float[Array, "T N"]
    terminated: Bool[Array, "T N"]
    truncated: Bool[Array, "T N"]
    bootstrap_value: Value
    valid: Bool[Array, "T N"]
    memory: Memory
    last_observation: Observation
    last_episode_start: Bool[Array, " N"]
    last_memory: Memory
    last_value: Value
    burn_in_steps: BurnIn | None = None


class CompensatedSum(eqx.Module):
    """A float32 sum ``value`` with its rounding error ``rest``, which the next addition includes.

    A plain sum of a million rewards of 0.1 is wrong by 1 %, because each addition rounds to the last place of the sum.

    Source: Kahan 1965, "Further remarks on reducing truncation errors".
    """

    value: Float[Array, " N"]
    rest: Float[Array, " N"]

    @classmethod
    def zeros(cls, shape: int | tuple[int, ...]) -> CompensatedSum:
        """Empty sums."""
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    def plus(self, x: Float[Array, " N"]) -> CompensatedSum:
        """The sum with ``x`` added. NaN and infinity stay in the sum as in a plain one."""
        x = x + self.rest
        value = self.value + x
        return CompensatedSum(value, jnp.where(jnp.isfinite(value), x - (value - self.value), 0.0))

    def zero_where(self, mask: Bool[Array, " N"]) -> CompensatedSum:
        """The sum, set to 0 where ``mask`` is True."""
        return jax.tree.map(lambda x: jnp.where(mask, 0.0, x), self)


class EpisodeStatistics(eqx.Module):
    """The running episodes. An absent agent keeps its last one until the reset. A ``partial`` one is not recorded: the collector may
    truncate it (``stagger_steps``)."""

    episode_return: CompensatedSum
    length: UInt32[Array, " N"]
    partial: Bool[Array, " N"]


class JaxCollectorState(eqx.Module):
    """What the collector for JAX environments carries from rollout to rollout.

    Attributes:
        env_params: parameters of the environment, shared by all; in games, past policies.
        env_state: E ...: states of the ``E`` environments, whose agents are the ``N`` columns.
        observation, episode_start, memory: N ...: the next observation, whether an episode starts, the memory before it.
        episode: the running episodes.
        step_limit: N: steps of the environment after which the running episode is truncated.
        key: random key of the next rollout.
        burn_in_steps, burn_in_memory: the last steps of the previous rollout, N ...: the memory before them; else None.
        previous: N ...: the previous action and reward; None unless the policy observes them.
        present: N: whether the agent acts in the next step; None for environments of one agent.
    """

    env_params: PyTree
    env_state: PyTree
    observation: Observation
    episode_start: Bool[Array, " N"]
    memory: Memory
    episode: EpisodeStatistics
    step_limit: UInt32[Array, " N"]
    key: Key[Array, ""]
    burn_in_steps: BurnIn | None
    burn_in_memory: Memory
    previous: Previous | None
    present: Bool[Array, " N"] | None = None


class GymnasiumCollectorState(eqx.Module):
    """The random key of seeds and actions. Gymnasium environments cannot be saved: a resumed training restarts them."""

    key: Key[Array, ""]


class TrainState(eqx.Module):
    """The whole state of a training. A checkpoint is this state.

    Attributes:
        learner: ``proximo.ppo.LearnerState``.
        collector: ``JaxCollectorState`` or ``GymnasiumCollectorState``.
        healthy: False after an update with NaN or infinity. The learner, and the collector of a JAX environment, then
            keep their values from before this update.
    """

    learner: Any
    collector: Any
    healthy: Bool[Array, ""]


def add_steps(steps: UInt32[Array, "2"], count: int) -> UInt32[Array, "2"]:
    """Add ``count``, below 2^32, to a counter of two words (low, high): int32 overflows at 2.1e9 steps."""
    low = steps[0] + jnp.uint32(count)
    return jnp.stack([low, steps[1] + (low < steps[0]).astype(jnp.uint32)])


def int_of_steps(steps: UInt32[Array, "2"]) -> int:
    """The counter of ``add_steps`` as a number of Python."""
    low, high = np.asarray(steps).tolist()
    return (high << 32) + low


def steps_to_float(steps: UInt32[Array, "2"]) -> Scalar:
    """The counter of ``add_steps`` as one floating-point number, for schedules."""
    return steps[1].astype(jnp.float32) * jnp.float32(2.0**32) + steps[0].astype(jnp.float32)


def select(condition: Bool[Array, "*batch"], this: PyTree, other: PyTree) -> PyTree:
    """``jnp.where`` for pytrees of arrays ``[*batch, ...]`` that have the leading axes of ``condition``."""

    def pick(a, b):
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - condition.ndim)), a, b)

    return jax.tree.map(pick, this, other)


def is_key(x: Any) -> bool:
    """Whether an array has random keys (``jax.random.key``), which NumPy does not support."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
