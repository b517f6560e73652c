"""Checks an update for NaN and infinity."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from proximo.math.across_devices import on_any_device
from proximo.networks.recurrent import select
from proximo.ppo.state import LearnerState
from proximo.types import Metrics, Rollout


def find_non_finite(rollout: Rollout, metrics: Metrics, before: LearnerState, state: LearnerState) -> dict[str, Bool[Array, ""]]:
    """Check an update for NaN and infinity.

    Args:
        rollout: what was learned from.
        metrics: the metrics of the update.
        before: the learner before the update. An infinity that stays may be a constant of a custom network, such as a mask.
        state: the learner after the update.

    Returns:
        By source, whether a number is NaN or infinite: ``observation`` (valid, last and final ones), ``reward`` (valid ones, and their
        statistics), ``loss``, ``gradient`` (its norm), ``parameters`` (statistics of the normalizer included).
    """

    def bad(tree: PyTree, valid: Bool[Array, "T N"] | None = None) -> Bool[Array, ""]:
        broken = jax.tree.map(lambda x: ~jnp.isfinite(x), eqx.filter(tree, eqx.is_inexact_array))
        if valid is not None:
            broken = select(valid, broken, jax.tree.map(jnp.zeros_like, broken))
        return on_any_device(jnp.any(jnp.array([jnp.any(x) for x in jax.tree.leaves(broken)])))

    return {
        # The final observation of a truncated episode is not stored. Its value is: not finite if the observation was not.
        "observation": bad(rollout.observation, rollout.valid) | bad((rollout.last_observation, rollout.bootstrap_value)),
        # A huge reward may be finite while its square, in the statistics that scale rewards, is not.
        "reward": bad(rollout.reward, rollout.valid) | bad(state.reward_normalizer),
        "loss": bad(metrics["loss"]),
        # Clipping divides by the norm: a gradient with an infinite norm would become zero without notice, even if the loss is finite.
        "gradient": bad(metrics["grad_norm"]),
        # Those of the normalizer too: finite observations may overflow in its statistics.
        "parameters": bad(_without_constant_infinities(before.policy, state.policy)),
    }


def _without_constant_infinities(before: PyTree, after: PyTree) -> PyTree:
    """The arrays of ``after``, with 0 for each infinity that ``before`` has at the same place."""
    arrays = (eqx.filter(tree, eqx.is_inexact_array) for tree in (after, before))
    return jax.tree.map(lambda new, old: jnp.where(jnp.isinf(new) & (new == old), 0, new), *arrays)
