"""Diagnostics of an update: its transitions and ratios, the use of its memory, and NaN or infinity."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from proximo.math.across_devices import on_any_device, total
from proximo.math.loss_terms import approximate_kl, probability_ratio
from proximo.math.masked_statistics import masked_mean
from proximo.networks import ActorCritic
from proximo.ppo.minibatches import join_sequences, run_burn_in, sequences_of, split_sequences, stack_memory, unroll
from proximo.ppo.rollout_processing import compute_advantages, refresh_memory, scale_rewards
from proximo.ppo.state import LearnerState
from proximo.types import Metrics, Rollout, select, steps_to_float


def learned_from(state: LearnerState, rollout: Rollout) -> dict[str, Any]:
    """What ``ppo.update(state, rollout)`` learns from in its first epoch, with axes ``T N ...``.
    ``advantages`` are not normalized. ``returns`` are the targets of the value in units of the scaled
    reward. ``actions`` are as the environment received them, ``observations`` as it returned them.
    Advantages and returns use the values that were collected. With ``recompute_advantage``, the update recomputes them
    before each epoch; the results differ if the policy has changed since it acted."""
    _, scaled = scale_rewards(state, rollout)
    advantage, target = compute_advantages(scaled, state.hyperparameters)
    return {
        "advantages": advantage,
        "returns": target,
        "actions": jax.vmap(state.policy.to_space)(rollout.action),
        "observations": rollout.observation,
        "valid": rollout.valid,
    }


def ratios(before: LearnerState, policy: ActorCritic, rollout: Rollout) -> Float[Array, "T N"]:
    """Probability of each action under ``policy``, after an update, divided by its probability under the
    policy that acted. Observations are normalized by the statistics from ``before`` the update, so that only
    the parameters differ."""
    policy, length = dataclasses.replace(policy, normalizer=before.policy.normalizer), before.static.ppo.sequence_length
    action, log_prob = split_sequences((rollout.action, rollout.log_prob), length)
    log_ratio = unroll(policy, sequences_of(rollout, length)).distribution.log_prob(action) - log_prob
    return join_sequences(probability_ratio(log_ratio), rollout.episode_start.shape[1])


def memory_is_due(state: LearnerState, rollout: Rollout) -> Bool[Array, ""]:
    """Whether the memory is diagnosed after the update from ``state``."""
    updates = jnp.round(steps_to_float(state.steps) / state.static.batch_size)
    return jnp.mod(updates + 1, state.static.diagnose_every) == 0


def diagnose_memory(policy: ActorCritic, rollout: Rollout, length: int) -> Metrics:
    """Diagnose the memory of ``policy`` after an update, with the rollout that it has learned from.

    Returns:
        ``staleness``: distance between the stored memories and the memories that ``policy`` computes, relative to the
        norm of the computed ones; with burn-in, both are compared after it. ``use``: approximate Kullback-Leibler
        divergence between the policy's actions with its memory and with an empty memory at every step.
    """
    renewed = refresh_memory(policy, rollout, length)
    sequences = sequences_of(renewed, length)
    remembering = unroll(policy, sequences).distribution
    without_memory = dataclasses.replace(policy, reset_memory=True)
    every_step = dataclasses.replace(sequences, episode_start=jnp.ones_like(sequences.episode_start))
    forgetting = unroll(without_memory, every_step).distribution
    action = split_sequences(rollout.action, length)
    log_ratio = forgetting.log_prob(action) - remembering.log_prob(action)
    if rollout.burn_in_steps is None:
        # Includes last_memory, with which the next rollout begins. The first memory of a rollout is never recomputed and adds 0.
        memories = [(r.memory, r.last_memory) for r in (rollout, renewed)]
    else:
        memories = [run_burn_in(policy, stack_memory(r.memory), sequences.burn_in_steps) for r in (rollout, renewed)]
    stored, fresh = eqx.filter(memories, eqx.is_inexact_array)

    def squared(tree: PyTree[Array]) -> Array:
        return total(sum((jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree)), jnp.zeros(())))

    staleness = jnp.sqrt(squared(jax.tree.map(jnp.subtract, stored, fresh)) / (squared(fresh) + 1e-12))
    return {"staleness": staleness, "use": masked_mean(approximate_kl(log_ratio), sequences.valid)}


def find_non_finite(rollout: Rollout, metrics: Metrics, before: LearnerState, state: LearnerState) -> dict[str, Bool[Array, ""]]:
    """Whether an update has NaN or infinity, by source.

    Args:
        rollout: what was learned from.
        metrics: the metrics of the update.
        before: the learner before it. An infinity that stays may be a constant of a custom network, such as a mask.
        state: the learner after it.

    Returns:
        Flags for ``observation`` (valid, last and final ones), ``reward`` (valid ones, and their statistics), ``loss``,
        ``gradient`` (its norm) and ``parameters`` (statistics of the normalizer included).
    """

    def bad(tree: PyTree, valid: Bool[Array, "T N"] | None = None) -> Bool[Array, ""]:
        broken = jax.tree.map(lambda x: ~jnp.isfinite(x), eqx.filter(tree, eqx.is_inexact_array))
        if valid is not None:
            broken = select(valid, broken, jax.tree.map(jnp.zeros_like, broken))
        return on_any_device(jnp.any(jnp.array([jnp.any(x) for x in jax.tree.leaves(broken)])))

    def without_constants(old: Array, new: Array) -> Array:
        return jnp.where(jnp.isinf(new) & (new == old), 0, new)

    return {
        # The final observation of a truncated episode is not stored. Its value is: not finite if the observation was not.
        "observation": bad(rollout.observation, rollout.valid) | bad((rollout.last_observation, rollout.bootstrap_value)),
        # A huge reward may be finite while its square, in the statistics that scale rewards, is not.
        "reward": bad(rollout.reward, rollout.valid) | bad(state.reward_normalizer),
        "loss": bad(metrics["loss"]),
        # Clipping divides by the norm: a gradient with an infinite norm would become zero without notice, even if the loss is finite.
        "gradient": bad(metrics["grad_norm"]),
        # Those of the normalizer too: finite observations may overflow in its statistics.
        "parameters": bad(
            jax.tree.map(without_constants, *(eqx.filter(x.policy, eqx.is_inexact_array) for x in (before, state)))
        ),
    }
