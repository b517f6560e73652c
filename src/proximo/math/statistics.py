"""Running mean and variance of batches with filler rows, and of the discounted return."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class RunningStatistics(eqx.Module):
    """Mean and mean square deviation of all rows seen, merged batch by batch (Chan et al. 1979, "Updating formulae")."""

    count: Float[Array, "*batch"]
    mean: Float[Array, "..."]
    variance: Float[Array, "..."]

    @classmethod
    def of_shape(cls, shape: tuple[int, ...]) -> RunningStatistics:
        """Statistics of nothing yet: mean 0 and variance 1, so that normalising with them changes nothing."""
        return cls(jnp.zeros(()), jnp.zeros(shape), jnp.ones(shape))

    def merged(self, rows: Float[Array, "..."], valid: Bool[Array, "..."]) -> RunningStatistics:
        """With the valid ``rows`` (leading axes those of ``valid``) included."""
        axes = tuple(range(valid.ndim))
        weight = valid.reshape(valid.shape + (1,) * (rows.ndim - valid.ndim))
        added = jnp.sum(valid).astype(self.count.dtype)
        safe = jnp.maximum(added, 1.0)
        rows = rows.astype(self.mean.dtype)
        mean = jnp.sum(jnp.where(weight, rows, 0.0), axes) / safe
        variance = jnp.sum(jnp.where(weight, jnp.square(rows - mean), 0.0), axes) / safe
        total = jnp.maximum(self.count + added, 1.0)
        share, kept = added / total, self.count / total
        shift = mean - self.mean
        merged_variance = kept * self.variance + share * variance + kept * share * jnp.square(shift)
        nothing = added == 0
        return RunningStatistics(
            self.count + added,
            jnp.where(nothing, self.mean, self.mean + share * shift),
            jnp.where(nothing, self.variance, merged_variance),
        )

    def normalize(self, x: Float[Array, "..."], clip: float = 10.0) -> Float[Array, "..."]:
        """``(x - mean) / std``, clipped to ± ``clip``."""
        return jnp.clip((x - self.mean) * jax.lax.rsqrt(self.variance + 1e-8), -clip, clip)


def discounted_returns(
    running: Float[Array, " N"],
    reward: Float[Array, "T N"],
    done: Bool[Array, "T N"],
    valid: Bool[Array, "T N"],
    gamma: Float[Array, ""],
) -> tuple[Float[Array, " N"], Float[Array, "T N"]]:
    """``R_t = γ R_{t-1} + r_t``, starting from ``running`` and again from 0 after each episode; filler rows pass it on."""

    def step(carried: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        reward_t, done_t, valid_t = row
        reached = jnp.where(valid_t, gamma * carried + reward_t, carried)
        return jnp.where(done_t, 0.0, reached), reached

    return jax.lax.scan(step, running, (reward, done, valid), unroll=8)
