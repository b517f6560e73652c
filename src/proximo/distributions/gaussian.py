"""Independent normal components."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from proximo.distributions.distribution import Distribution, Each, Numbers

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
LOG_STD_RANGE = (-20.0, 2.0)
"""Range to which a log standard deviation that a network computes is clipped: its ``exp`` would be unbounded."""


class Gaussian(Distribution):
    """Independent normal components: ``N(mean, diag(exp(log_std)²))``, for Box actions.

    ``log_std`` has the shape of ``mean`` or broadcasts against it.
    """

    mean: Numbers
    log_std: Float[Array, "..."]

    def sample(self, noise: Numbers) -> Numbers:
        """``mean + std · noise``, for standard normal noise."""
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Numbers:
        """The mean."""
        return self.mean

    def log_prob(self, action: Numbers) -> Each:
        """``Σ -½ ((a - mean) / std)² - log std - ½ log 2π``."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * jnp.square(z) - self.log_std - _HALF_LOG_2PI, axis=-1)

    def entropy(self) -> Each:
        """``Σ log std + ½ log 2πe``."""
        return jnp.sum(jnp.broadcast_to(self.log_std + _HALF_LOG_2PI + 0.5, self.mean.shape), axis=-1)
