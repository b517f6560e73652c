"""The terms of PPO's policy loss for each step; ``ppo/loss.py`` has the value loss, and adds up all means.

Arrays of steps have any shape, written ``*steps``; all in one call have the same. Arguments that several
functions have:

    log_ratio: ``log π(a|s) - log π_old(a|s)`` of actions that the old policy sampled. The probability ratio is ``r = exp(log_ratio)``.
    advantage: ``A``.
    clip_eps: clip range ``ε``, at least 0.
"""

import math

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from proximo.types import Scalar

Steps = Float[Array, "*steps"]
MAX_LOG_RATIO = 20.0
"""``exp(20)`` is 5e8: its square, in the norm of the gradient, does not overflow float32."""
MAX_DISTANCE, MIN_CLIP_EPS = 1e4, 1e-6
"""Limits of the quadratic penalty on the ratio."""


def probability_ratio(log_ratio: Steps) -> Steps:
    """Probability ratio ``r``, continued beyond ``MAX_LOG_RATIO`` by its tangent.

    The ratio and its gradient thus stay finite, and the gradient keeps its sign. ``exp`` overflows above 88,
    and ``0 * inf`` would make the gradient of a clipped transition NaN.
    """
    bounded = jnp.minimum(log_ratio, MAX_LOG_RATIO)
    tangent = math.exp(MAX_LOG_RATIO) * (1.0 + log_ratio - MAX_LOG_RATIO)
    return jnp.where(log_ratio > MAX_LOG_RATIO, tangent, jnp.exp(bounded))


def clipped_surrogate(log_ratio: Steps, advantage: Steps, clip_eps: Scalar) -> Steps:
    """The clipped surrogate, negated: ``-min(r A, clip(r, 1 - ε, 1 + ε) A)``.

    Source: Schulman et al. 2017, arXiv:1707.06347, equation 7.
    """
    ratio = probability_ratio(log_ratio)
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip_eps, 1.0 + clip_eps) * advantage)


def quadratic_surrogate(log_ratio: Steps, advantage: Steps, clip_eps: Scalar) -> Steps:
    """The surrogate of simple policy optimization, negated: ``-(r A - |A| (r - 1)² / (2 ε))``. It is smallest at
    ``r = 1 + ε`` where ``A > 0``, and at ``r = 1 - ε`` where ``A < 0``. Its gradient moves larger deviations back.

    Beyond ``MAX_DISTANCE`` the square is continued by its tangent, and ε is at least ``MIN_CLIP_EPS``: gradients stay finite.

    Source: Xie et al. 2024, "Simple policy optimization", arXiv:2401.16025.
    """
    ratio, clip_eps = probability_ratio(log_ratio), jnp.maximum(clip_eps, MIN_CLIP_EPS)
    half_square = optax.losses.huber_loss(ratio, jnp.ones_like(ratio), delta=MAX_DISTANCE)
    return jnp.abs(advantage) * half_square / clip_eps - ratio * advantage


def dual_clipped(surrogate: Steps, advantage: Steps, max_ratio: Scalar) -> Steps:
    """``min(surrogate, -c A)`` where ``A < 0``, for a negated surrogate: the loss does not grow with ratios
    beyond ``c``.

    Source: Ye et al. 2020, arXiv:1912.09729, equation 5.
    """
    return jnp.where(advantage < 0.0, jnp.minimum(surrogate, -max_ratio * advantage), surrogate)


def approximate_kl(log_ratio: Steps) -> Steps:
    """An unbiased estimate of ``KL(old ‖ new)`` that is never negative: ``(r - 1) - log r``.

    Source: Schulman 2020, "Approximating KL divergence", estimator k3.
    """
    bounded = jnp.minimum(log_ratio, MAX_LOG_RATIO)
    above = probability_ratio(log_ratio) - 1.0
    return jnp.where(log_ratio > MAX_LOG_RATIO, above, jnp.expm1(bounded)) - log_ratio
