"""Whether the stored memories are up to date, and whether the policy uses its memory."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from proximo.math.across_devices import num_devices, total
from proximo.math.loss_terms import approximate_kl
from proximo.math.masked_statistics import masked_mean
from proximo.networks import ActorCritic
from proximo.ppo.minibatches import run_burn_in, sequences_of, split_sequences, stack_memory, unroll
from proximo.ppo.rollout_processing import refresh_memory
from proximo.ppo.state import LearnerState
from proximo.types import Metrics, Rollout, steps_to_float


def is_due(state: LearnerState, rollout: Rollout) -> Bool[Array, ""]:
    """Whether the memory is diagnosed after the update from ``state``: after every ``diagnose_every``-th one."""
    updates = jnp.round(steps_to_float(state.steps) / (rollout.episode_start.size * num_devices()))
    return jnp.mod(updates + 1, state.static.diagnose_every) == 0


def diagnose(policy: ActorCritic, rollout: Rollout, length: int) -> Metrics:
    """Diagnose the memory of ``policy`` after an update, with the rollout that it has learned from and its sequence length.

    Returns:
        ``staleness``: distance of the stored memories from those that ``policy`` computes, relative to the norm of the latter. With
        burn-in, the memories after the burn-in are compared.
        ``use``: approximate Kullback-Leibler divergence of the policy's actions from those with an empty memory at every step; 0 if
        the memory changes nothing.
    """
    fresh = refresh_memory(policy, rollout, length)
    sequences = sequences_of(fresh, length)
    _, remembering, _ = unroll(policy, sequences)
    without_memory = dataclasses.replace(policy, reset_memory=True)
    every_step = dataclasses.replace(sequences, episode_start=jnp.ones_like(sequences.episode_start))
    _, forgetting, _ = unroll(without_memory, every_step)
    action, valid = split_sequences(rollout.action, length), split_sequences(rollout.valid, length)
    log_ratio = forgetting.log_prob(action) - remembering.log_prob(action)
    if rollout.burn_in_steps is None:
        # Includes last_memory, with which the next rollout begins. The first memory of a rollout is never recomputed and adds 0.
        memories = [(r.memory, r.last_memory) for r in (rollout, fresh)]
    else:
        memories = [run_burn_in(policy, stack_memory(r.memory), sequences.burn_in_steps) for r in (rollout, fresh)]
    return {"staleness": _distance(*memories), "use": masked_mean(approximate_kl(log_ratio), valid)}


def not_measured() -> Metrics:
    """The metrics of an update after which the memory is not diagnosed: NaN, which ``metrics.jsonl`` stores as null."""
    return {"staleness": jnp.array(jnp.nan), "use": jnp.array(jnp.nan)}


def _distance(stored: PyTree[Array], fresh: PyTree[Array]) -> Float[Array, ""]:
    """``‖stored - fresh‖ / ‖fresh‖`` over all numbers of all memories."""

    def squared(tree: PyTree[Array]) -> Array:
        return total(sum((jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree)), jnp.zeros(())))

    stored, fresh = eqx.filter((stored, fresh), eqx.is_inexact_array)
    return jnp.sqrt(squared(jax.tree.map(jnp.subtract, stored, fresh)) / (squared(fresh) + 1e-12))
