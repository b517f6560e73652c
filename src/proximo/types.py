"""The pytrees that travel between the drivers, the learner and the run: axes are ``[time, env, ...]``, ``T N``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped, UInt32

if TYPE_CHECKING:  # what a strict type checker can follow: it sees nothing in a PyTree
    Observation = Any
    Memory = Any
else:
    Observation = PyTree[Shaped[Array, "..."]]
    Memory = PyTree[Array]
Metrics = dict[str, Float[Array, "..."]]


class Warmup(eqx.Module):
    """Rows that are read to bring the memory up to date, and nothing else: ``B N ...``."""

    observation: Observation
    first: Bool[Array, "B N"]
    valid: Bool[Array, "B N"]


class Previous(eqx.Module):
    """What was done before the row that is to be observed, and what came of it: for policies that observe it."""

    action: Float[Array, "*rows n"]
    """The sampled action in numbers, as ``ActorHead.features`` gives it."""
    reward: Float[Array, "*rows"]
    """Raw."""


class Rollout(eqx.Module):
    """What ``T`` steps of ``N`` environments gave, for either driver. ``value``, ``bootstrap`` and ``last_value`` are in
    the units of the scaled reward; ``reward`` is raw. The sequences are the ``T / L`` contiguous pieces in time."""

    observation: Observation
    """T N ...: as the environment gave it, before normalisation."""
    first: Bool[Array, "T N"]
    """The memory is reset before this observation is read."""
    action: Shaped[Array, "T N ..."]
    """As the distribution sampled it: before clipping, squashing or scaling to the space."""
    log_prob: Float[Array, "T N"]
    """Of ``action`` under the policy that acted."""
    value: Float[Array, "T N"]
    """Under the policy that acted."""
    reward: Float[Array, "T N"]
    terminated: Bool[Array, "T N"]
    truncated: Bool[Array, "T N"]
    bootstrap: Float[Array, "T N"]
    """Value of the true final observation, read with the memory after the step, where ``truncated & ~terminated``; else 0."""
    valid: Bool[Array, "T N"]
    """False on filler rows: they enter no loss and no statistic, and leave the memory unchanged."""
    memory: Memory
    """T/L N ...: the memory before the first row of every sequence, burn-in included."""
    last_observation: Observation
    last_first: Bool[Array, " N"]
    last_memory: Memory
    last_value: Float[Array, " N"]
    warmup: Warmup | None = None
    """The last rows of the rollout before, which the first sequences burn in on; not valid at the very start. None without
    burn-in."""


class Schedule(eqx.Module):
    """``final + (initial - final) (1 - share) ** power`` with ``share = min(progress / fraction, 1)``; where ``power`` is 0,
    ``initial ** (1 - share) final ** share``. All four traced."""

    initial: Float[Array, "..."]
    final: Float[Array, "..."]
    power: Float[Array, "..."]
    fraction: Float[Array, "..."]


class Hyperparameters(eqx.Module):
    """The numbers of PPO that may change without a new compilation, and over which training can be vmapped."""

    learning_rate: Schedule
    critic_learning_rate: Schedule
    ent_coef: Schedule
    clip_eps: Schedule
    gamma: Float[Array, "..."]
    gae_lambda: Float[Array, "..."]
    vf_coef: Float[Array, "..."]
    clip_value_eps: Float[Array, "..."]
    dual_clip: Float[Array, "..."]
    kl_target: Float[Array, "..."]
    desired_kl: Float[Array, "..."]
    max_grad_norm: Float[Array, "..."]
    target_kl: Float[Array, "..."]
    weight_decay: Float[Array, "..."]
    total_steps: Float[Array, "..."]


class EpisodeStatistics(eqx.Module):
    """The episode that each environment is in: raw return and length so far. Partial episodes are not recorded."""

    episode_return: Float[Array, " N"]
    length: UInt32[Array, " N"]
    partial: Bool[Array, " N"]
    """The running episode may be cut short by the driver (a start out of phase) and will not be counted."""


class CollectorState(eqx.Module):
    """What a device driver needs to go on collecting."""

    env_params: PyTree
    env_state: PyTree
    observation: Observation
    first: Bool[Array, " N"]
    memory: Memory
    episode: EpisodeStatistics
    step_limit: UInt32[Array, " N"]
    """The running episode is truncated after so many steps."""
    key: Key[Array, ""]
    warmup: Warmup | None
    """With burn-in, the last rows of the rollout before, and the memory before them."""
    warmup_memory: Memory
    previous: Previous | None
    """None where the policy does not observe it."""


class HostCollectorState(eqx.Module):
    """What a host driver needs to go on collecting: environments cannot be saved, and begin anew with seeds from this key."""

    key: Key[Array, ""]


class TrainState(eqx.Module):
    """All that training carries on: saving it is a checkpoint, loading it continues."""

    learner: Any
    """``proximo.ppo.LearnerState``: policy with its normaliser, optimizer, hyperparameters, key, step counter."""
    collector: Any
    """``CollectorState`` of a device driver, ``HostCollectorState`` of a host driver."""
    healthy: Bool[Array, ""]
    """False from the first update with a NaN or an infinity on; the rest of the state then stays as it was before it."""


def add_steps(steps: UInt32[Array, "2"], count: int) -> UInt32[Array, "2"]:
    """64-bit step counter as (low, high) words: int32 overflows at 2.1e9 steps."""
    low = steps[0] + jnp.uint32(count)
    carry = (low < steps[0]).astype(jnp.uint32)
    return jnp.stack([low, steps[1] + carry])


def steps_to_float(steps: UInt32[Array, "2"]) -> Float[Array, ""]:
    """The counter as a floating-point number, for schedules."""
    return steps[1].astype(jnp.float32) * jnp.float32(2.0**32) + steps[0].astype(jnp.float32)
