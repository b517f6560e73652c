"""Whether a memory is up to date, and whether it is used."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from proximo.math import losses
from proximo.networks import ActorCritic
from proximo.ppo.batch import cut, sequences_of, unroll, warm
from proximo.ppo.rollouts import refresh_memory
from proximo.ppo.state import LearnerState
from proximo.types import Metrics, Rollout, steps_to_float


def is_due(state: LearnerState, rollout: Rollout) -> Bool[Array, ""]:
    """Whether the update from ``state`` is one of those that are looked at: every ``diagnose_every``-th."""
    updates = jnp.round(steps_to_float(state.steps) / rollout.first.size)
    return jnp.mod(updates + 1, state.plan.diagnose_every) == 0


def diagnose(policy: ActorCritic, rollout: Rollout, length: int) -> Metrics:
    """Of the policy that has learned from ``rollout``: ``staleness``, the distance of the stored memories (behind the burnt-in
    rows, where there are any) from those that it would have come to itself, relative to their size; ``use``, the approximate
    Kullback-Leibler divergence of its actions from those that it would take with an empty memory in every row (0 where memory
    changes nothing)."""
    fresh = refresh_memory(policy, rollout, length)
    sequences = sequences_of(fresh, length)
    forgetful = dataclasses.replace(policy, reset_memory=True)
    _, remembering, _ = unroll(policy, sequences)
    every_row = dataclasses.replace(sequences, first=jnp.ones_like(sequences.first))
    _, forgetting, _ = unroll(forgetful, every_row)
    action, valid = cut(rollout.action, length), cut(rollout.valid, length)
    log_ratio = forgetting.log_prob(action) - remembering.log_prob(action)
    if rollout.warmup is None:  # the last one too: the next rollout begins with it, and the first one is never computed anew
        memories = (rollout.memory, rollout.last_memory), (fresh.memory, fresh.last_memory)
    else:
        stored = sequences_of(rollout, length).memory
        memories = warm(policy, stored, sequences.warmup), warm(policy, sequences.memory, sequences.warmup)
    return {
        "staleness": _distance(*memories),
        "use": losses.masked_mean(losses.approximate_kl(log_ratio), valid),
    }


def nothing() -> Metrics:
    """In updates that are not looked at: not a number, in ``metrics.jsonl`` null."""
    return {"staleness": jnp.array(jnp.nan), "use": jnp.array(jnp.nan)}


def _distance(stored: PyTree[Array], fresh: PyTree[Array]) -> Float[Array, ""]:
    """``‖stored - fresh‖ / ‖fresh‖`` over all numbers of all memories."""

    def squared(tree: PyTree[Array]) -> Array:
        return sum((jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree)), jnp.zeros(()))

    stored, fresh = eqx.filter((stored, fresh), eqx.is_inexact_array)
    return jnp.sqrt(squared(jax.tree.map(jnp.subtract, stored, fresh)) / (squared(fresh) + 1e-12))
