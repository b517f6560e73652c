"""Running mean and variance of batches with padding, and the discounted return."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from proximo.math.across_devices import total
from proximo.types import Scalar

WORD = 2.0**23
"""The low word is below ``WORD``. With at most ``WORD`` new samples it stays below 2^24, so that float32 counts exactly."""

Flags = Bool[Array, "T N"]


class RunningStatistics(eqx.Module):
    """Mean and variance of all valid samples, merged batch by batch.

    The updates are incremental (``mean + change``): a weighted average of both variances loses 6 % in ten
    million merges by rounding. Source: Chan et al. 1979, "Updating formulae and a pairwise algorithm for
    computing sample variances".
    """

    count: Float[Array, "*batch 2"]
    """Low and high word in units of 1 and ``WORD``, because one float32 cannot count beyond 2^24. They are
    floating-point numbers, as all parameters of a policy, for ``jax.grad`` and for sending them as one
    vector."""
    mean: Float[Array, "..."]
    variance: Float[Array, "..."]

    @classmethod
    def of_shape(cls, shape: tuple[int, ...]) -> "RunningStatistics":
        """Statistics of no samples: mean 0 and variance 1, so that normalizing with them changes nothing."""
        return cls(jnp.zeros(2), jnp.zeros(shape), jnp.ones(shape))

    def merged(self, samples: Float[Array, "..."], valid: Bool[Array, "..."]) -> "RunningStatistics":
        """Add the valid samples of all devices, with the axes of ``valid`` first, then those of ``mean``."""
        weight = valid.reshape(valid.shape + (1,) * (samples.ndim - valid.ndim))
        added = total(jnp.sum(valid).astype(self.mean.dtype))
        samples = samples.astype(self.mean.dtype)

        def mean_of(x):
            return total(jnp.sum(jnp.where(weight, x, 0.0), tuple(range(valid.ndim)))) / jnp.maximum(added, 1.0)

        mean = mean_of(samples)
        mean = mean + mean_of(samples - mean)  # a second pass corrects its rounding: the variance of equal samples is 0
        return self.merged_moments(added, mean, mean_of(jnp.square(samples - mean)))

    def merged_moments(self, added: Scalar, mean: Array, variance: Array) -> "RunningStatistics":
        """Add ``added`` samples (at most ``WORD``; 0 changes nothing) by their mean and their variance, divided by their number."""
        low, high = self.count[0] + added, self.count[1]
        carry = jnp.floor(low / WORD)
        count = jnp.stack([low - carry * WORD, high + carry])
        share = added / jnp.maximum(count[1] * WORD + count[0], 1.0)
        shift = mean - self.mean
        change = share * (variance - self.variance + (1.0 - share) * jnp.square(shift))
        # The first samples replace the variance: 1 + (v - 1) would lose a small v.
        is_first = share == 1.0
        return RunningStatistics(count, self.mean + share * shift, jnp.where(is_first, variance, self.variance + change))

    def normalize(self, x: Float[Array, "..."], clip: float = 10.0) -> Float[Array, "..."]:
        """``(x - mean) / std``, clipped to ± ``clip``."""
        return jnp.clip((x - self.mean) * jax.lax.rsqrt(self.variance + 1e-8), -clip, clip)


def discounted_returns(
    running: Float[Array, " N"], reward: Float[Array, "T N"], done: Flags, valid: Flags, gamma: Scalar
) -> tuple[Float[Array, " N"], Float[Array, "T N"]]:
    """Discounted sum of past rewards, ``R_t = γ R_{t-1} + r_t`` from ``running``, restarted from 0 after each
    episode.

    ``done``: the episode ends with this step. Padding leaves ``R`` unchanged. Returns ``R`` after the last
    step (0 if an episode has just ended) and at each step.
    """

    def advance(carried, step):
        reward_t, done_t, valid_t = step
        reached = jnp.where(valid_t, gamma * carried + reward_t, carried)
        return jnp.where(done_t, 0.0, reached), reached

    return jax.lax.scan(advance, running, (reward, done, valid), unroll=8)
