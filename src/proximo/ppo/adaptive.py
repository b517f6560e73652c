"""Hyperparameters that follow the divergence of the policy from update to update."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from proximo.ppo.state import AdaptiveState, LearnerState
from proximo.types import Metrics

RATE_RANGE = (1e-5, 1e-2)
"""The adapted learning rate stays within this range."""
RATE_FACTOR = 1.5
COEF_RANGE = (1e-6, 1e6)
"""β stays within this range: repeated halving would otherwise reach 0, which no doubling leaves."""


def learning_rate(state: LearnerState) -> Float[Array, ""]:
    """The learning rate of the schedule. With ``desired_kl``, it is raised to the lower end of
    ``RATE_RANGE``, multiplied by the adapted factor, and clipped to ``RATE_RANGE``."""
    rate, factor = state.hyperparameters.learning_rate(state.progress), state.adaptive.rate_factor
    return rate if factor is None else jnp.clip(jnp.maximum(rate, RATE_RANGE[0]) * factor, *RATE_RANGE)


def adapt(state: LearnerState, step_metrics: Metrics) -> AdaptiveState:
    """Adapt β and the learning rate to the divergence that an update has caused.

    The divergence is the mean approximate KL of the epoch where it was largest. ``step_metrics`` has an
    array ``K M`` for each metric: ``K`` epochs of ``M`` gradient steps.

    Source: Schulman et al. 2017, arXiv:1707.06347: β in section 4, a learning rate that follows the divergence in
    appendix A, table 4. The rule for the learning rate is from Rudin et al. 2021, arXiv:2109.11978.
    """
    h, adaptive = state.hyperparameters, state.adaptive
    divergence = jnp.max(jax.vmap(mean_of_steps)(step_metrics["approx_kl"], taken_steps(step_metrics["active"])))
    if adaptive.kl_coef is not None:
        halved = jnp.where(divergence < h.kl_target / 1.5, 0.5, 1.0)
        factor = jnp.where(divergence > h.kl_target * 1.5, 2.0, halved)
        coef = jnp.where(h.kl_target > 0, jnp.clip(adaptive.kl_coef * factor, *COEF_RANGE), adaptive.kl_coef)
        adaptive = dataclasses.replace(adaptive, kl_coef=coef)
    if adaptive.rate_factor is not None and h.desired_kl is not None:
        rate, scheduled_rate = learning_rate(state), h.learning_rate(state.progress)
        raised = jnp.where(divergence < h.desired_kl / 2.0, RATE_FACTOR, 1.0)
        rate = rate * jnp.where(divergence > h.desired_kl * 2.0, 1.0 / RATE_FACTOR, raised)
        adaptive = dataclasses.replace(adaptive, rate_factor=rate / jnp.maximum(scheduled_rate, RATE_RANGE[0]))
    return adaptive


def mean_of_steps(x: Float[Array, "*steps"], taken: Bool[Array, "*steps"]) -> Float[Array, ""]:
    """Mean of a metric over the gradient steps that count; it is the same on all devices."""
    return jnp.sum(jnp.where(taken, x, 0.0)) / jnp.maximum(jnp.sum(taken), 1)


def taken_steps(active: Float[Array, "K M"]) -> Bool[Array, "K M"]:
    """The gradient steps that count in metrics: those that were taken, and the one that exceeded ``target_kl``."""
    return jnp.concatenate([jnp.ones(1), active.reshape(-1)[:-1]]).reshape(active.shape) > 0
