"""PPO's losses and diagnostics, row by row, and means over the rows that count."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Rows = Float[Array, "*rows"]
MAX_LOG_RATIO = 20.0
"""``exp(20)`` is 5e8: its square, in the norm of the gradient, does not overflow float32."""


def masked_mean(x: Rows, valid: Bool[Array, "*rows"]) -> Float[Array, ""]:
    """``Σ valid x / Σ valid``; 0 where no row is valid."""
    return jnp.sum(jnp.where(valid, x, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


def probability_ratio(log_ratio: Rows) -> Rows:
    """``exp(log_ratio)``, continued beyond ``exp(MAX_LOG_RATIO)`` by its tangent.

    The ratio and its gradient thus stay finite, and the gradient keeps its sign. ``exp`` overflows above 88, and ``0 * inf`` would
    make the gradient of a clipped transition NaN.
    """
    bounded = jnp.minimum(log_ratio, MAX_LOG_RATIO)
    tangent = math.exp(MAX_LOG_RATIO) * (1.0 + log_ratio - MAX_LOG_RATIO)
    return jnp.where(log_ratio > MAX_LOG_RATIO, tangent, jnp.exp(bounded))


def clipped_surrogate(log_ratio: Rows, advantage: Rows, clip_eps: Float[Array, ""]) -> Rows:
    """``-min(r A, clip(r, 1 - ε, 1 + ε) A)`` with the probability ratio ``r``. Schulman et al. 2017, equation 7."""
    ratio = probability_ratio(log_ratio)
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip_eps, 1.0 + clip_eps) * advantage)


def dual_clipped(surrogate: Rows, advantage: Rows, most: Float[Array, ""]) -> Rows:
    """``min(surrogate, -c A)`` where ``A < 0``, ``surrogate`` being the negated one: with a ratio beyond ``c`` it grows no more. Ye et al. 2020,
    arXiv:1912.09729, equation 5."""
    return jnp.where(advantage < 0.0, jnp.minimum(surrogate, -most * advantage), surrogate)


def value_loss(value: Rows, target: Rows) -> Rows:
    """``½ (V - target)²``."""
    return 0.5 * jnp.square(value - target)


def clipped_value_loss(value: Rows, old_value: Rows, target: Rows, clip_eps: Float[Array, ""]) -> Rows:
    """``½ max((V - target)², (V_old + clip(V - V_old, ±ε) - target)²)``: V moves at most ε beyond its old value."""
    clipped = old_value + jnp.clip(value - old_value, -clip_eps, clip_eps)
    return jnp.maximum(value_loss(value, target), value_loss(clipped, target))


def approximate_kl(log_ratio: Rows) -> Rows:
    """``(r - 1) - log r``: unbiased for KL(old ‖ new), never negative (k3 of Schulman 2020, "Approximating KL").

    Like ``probability_ratio``, it is finite up to log ratios of about 1e29.
    """
    bounded = jnp.minimum(log_ratio, MAX_LOG_RATIO)
    above = probability_ratio(log_ratio) - 1.0
    return jnp.where(log_ratio > MAX_LOG_RATIO, above, jnp.expm1(bounded)) - log_ratio


def explained_variance(value: Rows, target: Rows, valid: Bool[Array, "*rows"]) -> Float[Array, ""]:
    """``1 - Var(target - value) / Var(target)``: 1 is a perfect value function, 0 as good as a constant."""

    def variance(x: Rows) -> Float[Array, ""]:
        return masked_mean(jnp.square(x - masked_mean(x, valid)), valid)

    spread = variance(target)
    return jnp.where(spread > 0, 1.0 - variance(target - value) / jnp.where(spread > 0, spread, 1.0), 0.0)


def normalized(advantage: Rows, valid: Bool[Array, "*rows"]) -> Rows:
    """``(A - mean) / (std + 1e-8)`` over the valid rows; filler rows stay out of both."""
    mean = masked_mean(advantage, valid)
    deviation = jnp.sqrt(masked_mean(jnp.square(advantage - mean), valid))
    return (advantage - mean) / (deviation + 1e-8)
