"""Statistics over the valid steps of a batch, of all devices that share it (``across_devices``).

Arrays of steps have any shape, written ``*steps``; all in one call have the same.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from proximo.math.across_devices import total

Steps = Float[Array, "*steps"]
Valid = Bool[Array, "*steps"]


def count(valid: Valid) -> Float[Array, ""]:
    """Number of valid steps.

    Each device counts in integers. The sum over devices is a float, exact up to 2^24, so that the compiler can combine it with other sums
    into one all-reduce.
    """
    return total(jnp.sum(valid).astype(jnp.float32))


def mean_with_count(x: Steps, valid: Valid, num_valid: Float[Array, ""]) -> Float[Array, ""]:
    """Mean over valid steps, ``Σ valid x / num_valid``; 0 if no step is valid. ``num_valid`` is ``count(valid)``."""
    return total(jnp.sum(jnp.where(valid, x, 0.0))) / jnp.maximum(num_valid, 1.0)


def masked_mean(x: Steps, valid: Valid) -> Float[Array, ""]:
    """Mean over valid steps; 0 if no step is valid."""
    return mean_with_count(x, valid, count(valid))


def masked_variance(x: Steps, valid: Valid) -> Float[Array, ""]:
    """Variance over valid steps; 0 if no step is valid."""
    return masked_mean(jnp.square(x - masked_mean(x, valid)), valid)


def masked_std(x: Steps, valid: Valid) -> Float[Array, ""]:
    """Standard deviation over valid steps; 0 if no step is valid."""
    return jnp.sqrt(masked_variance(x, valid))


def explained_variance(value: Steps, target: Steps, valid: Valid) -> Float[Array, ""]:
    """Share of the variance of the targets that the value explains: ``1 - Var(target - value) / Var(target)``.

    1 is a perfect value function; 0 is as good as a constant. If the targets do not vary, the result is 0.
    """
    spread = masked_variance(target, valid)
    return jnp.where(spread > 0, 1.0 - masked_variance(target - value, valid) / jnp.where(spread > 0, spread, 1.0), 0.0)


def normalized(advantage: Steps, valid: Valid) -> Steps:
    """``(A - mean) / (std + 1e-8)``, with mean and standard deviation over the valid steps."""
    mean = masked_mean(advantage, valid)
    deviation = jnp.sqrt(masked_mean(jnp.square(advantage - mean), valid))
    return (advantage - mean) / (deviation + 1e-8)
