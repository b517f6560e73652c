"""Statistics over the valid steps of a batch, of all devices that share it (``across_devices``).

Arrays of steps have any shape, written ``*steps``; all in one call have the same.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from proximo.math.across_devices import total
from proximo.types import Scalar

Steps = Float[Array, "*steps"]
Valid = Bool[Array, "*steps"]
ROUNDING = 8.0
"""Numbers count as equal if their standard deviation is at most this many rounding errors of the numbers that they were computed from."""


def count(valid: Valid) -> Scalar:
    """Number of valid steps, as a float (exact up to 2^24): the compiler can then combine its all-reduce with others."""
    return total(jnp.sum(valid).astype(jnp.float32))


def mean_with_count(x: Steps, valid: Valid, num_valid: Scalar) -> Scalar:
    """Mean over valid steps, ``Σ valid x / num_valid``; 0 if no step is valid. ``num_valid`` is ``count(valid)``."""
    return total(jnp.sum(jnp.where(valid, x, 0.0))) / jnp.maximum(num_valid, 1.0)


def masked_mean(x: Steps, valid: Valid) -> Scalar:
    """Mean over valid steps; 0 if no step is valid."""
    return mean_with_count(x, valid, count(valid))


def centered(x: Steps, valid: Valid) -> tuple[Steps, Scalar]:
    """``x`` minus its mean over valid steps, and its variance there; both are 0 if no step is valid.

    The mean is subtracted twice, because it is rounded: equal numbers would have its rounding error as standard deviation.
    For the first difference ``d``, ``E[d^2] - E[d]^2`` loses no digits, because ``E[d]`` is only a rounding error.
    """
    difference = x - masked_mean(x, valid)
    rest = masked_mean(difference, valid)
    variance = masked_mean(jnp.square(difference), valid) - jnp.square(rest)
    return difference - rest, jnp.maximum(variance, 0.0)


def _is_rounding(deviation: Scalar, numbers: PyTree[Steps], valid: Valid) -> Array:
    """Whether a standard deviation is only rounding of the ``numbers`` from which the values were computed."""
    square = functools.reduce(jnp.add, map(jnp.square, jax.tree.leaves(numbers)))
    return deviation <= ROUNDING * jnp.finfo(square.dtype).eps * jnp.sqrt(masked_mean(square, valid))


def masked_std(x: Steps, valid: Valid) -> Scalar:
    """Standard deviation over valid steps; 0 if no step is valid."""
    return jnp.sqrt(centered(x, valid)[1])


def explained_variance(value: Steps, target: Steps, valid: Valid) -> Scalar:
    """Share of the variance of the targets that the value explains: ``1 - Var(target - value) /
    Var(target)``.

    1 is perfect; 0 is as good as a constant. NaN if the targets do not vary by more than their rounding.
    """
    (_, spread), (_, rest) = centered(target, valid), centered(target - value, valid)
    undefined = _is_rounding(jnp.sqrt(spread), target, valid)
    return jnp.where(undefined, jnp.nan, 1.0 - rest / jnp.where(undefined, 1.0, spread))


def normalized(advantage: Steps, target: PyTree[Steps], valid: Valid) -> Steps:
    """``(A - mean) / (std + 1e-8)`` over the valid steps; 0 if ``A`` varies only by rounding.

    Advantages are differences of values, so their rounding error grows with the targets of the values.
    """
    difference, variance = centered(advantage, valid)
    deviation = jnp.sqrt(variance)
    return jnp.where(_is_rounding(deviation, (advantage, target), valid), 0.0, difference / (deviation + 1e-8))
