"""Numbers that follow the divergence which an update has led to."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from proximo.math import losses
from proximo.math.schedules import scheduled
from proximo.ppo.state import Adapted, LearnerState
from proximo.types import Metrics

RATE_RANGE = (1e-5, 1e-2)
"""The adapted learning rate stays within it."""
RATE_FACTOR = 1.5
COEF_RANGE = (1e-6, 1e6)
"""So does β: halved for ever it would be 0, which no doubling brings back."""


def learning_rate(state: LearnerState) -> Float[Array, ""]:
    """That of the schedule, or as it was adapted."""
    rate, factor = scheduled(state.hyperparameters.learning_rate, state.progress), state.adapted.rate_factor
    return rate if factor is None else jnp.clip(rate * factor, *RATE_RANGE)


def looked_at(active: Float[Array, "E M"]) -> Bool[Array, "E M"]:
    """The gradient steps that were taken, and the one that ended them."""
    return jnp.concatenate([jnp.ones(1), active.reshape(-1)[:-1]]).reshape(active.shape) > 0


def adapt(state: LearnerState, metrics: Metrics) -> Adapted:
    """β (Schulman et al. 2017, section 4) and the learning rate (Heess et al. 2017, arXiv:1707.02286, appendix A, changed by 1.5 at a time as in
    Rudin et al. 2021, arXiv:2109.11978) for the next update.

    Looked at is the mean approximate divergence in the epoch where it was largest (``E M`` in ``metrics``): the last one, or the one that
    ``target_kl`` has ended.
    """
    h, adapted = state.hyperparameters, state.adapted
    divergence = jnp.max(jax.vmap(losses.masked_mean)(metrics["approx_kl"], looked_at(metrics["active"])))
    if adapted.kl_coef is not None:
        halved = jnp.where(divergence < h.kl_target / 1.5, 0.5, 1.0)
        factor = jnp.where(divergence > h.kl_target * 1.5, 2.0, halved)
        coef = jnp.where(h.kl_target > 0, jnp.clip(adapted.kl_coef * factor, *COEF_RANGE), adapted.kl_coef)
        adapted = dataclasses.replace(adapted, kl_coef=coef)
    if adapted.rate_factor is not None:
        rate, scheduled_rate = learning_rate(state), scheduled(h.learning_rate, state.progress)
        raised = jnp.where(divergence < h.desired_kl / 2.0, RATE_FACTOR, 1.0)
        rate = rate * jnp.where(divergence > h.desired_kl * 2.0, 1.0 / RATE_FACTOR, raised)
        adapted = dataclasses.replace(adapted, rate_factor=rate / jnp.maximum(scheduled_rate, RATE_RANGE[0]))
    return adapted
