"""Sums of many small numbers in float32."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class CompensatedSum(eqx.Module):
    """A sum, and what rounding has not yet added to it (Kahan's summation).

    A plain float32 sum of a million rewards of 0.1 is wrong by 1 %, because each addition rounds to the last place of the sum.

    Attributes:
        value: N: the sum, rounded.
        rest: N: what is missing from ``value``, less than its last place.

    Source: Kahan 1965, "Further remarks on reducing truncation errors".
    """

    value: Float[Array, " N"]
    rest: Float[Array, " N"]

    @classmethod
    def zeros(cls, shape: int | tuple[int, ...]) -> CompensatedSum:
        """Sums of nothing."""
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    def plus(self, x: Float[Array, " N"]) -> CompensatedSum:
        """The sum with ``x`` added. NaN and infinity stay in the sum as in a plain one."""
        x = x + self.rest
        value = self.value + x
        return CompensatedSum(value, jnp.where(jnp.isfinite(value), x - (value - self.value), 0.0))

    def zero_where(self, mask: Bool[Array, " N"]) -> CompensatedSum:
        """The sum, started anew where ``mask`` is True."""
        return jax.tree.map(lambda x: jnp.where(mask, 0.0, x), self)
