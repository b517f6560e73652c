"""Independent Beta components, on the unit interval."""

import jax
import jax.numpy as jnp
from jax.scipy.special import betaln, digamma
from jaxtyping import Array, Float, Key, UInt32

from proximo.distributions.distribution import Distribution

_EDGE = 1e-6
"""Samples stay so far within 0 … 1: at the ends the density is 0, and its logarithm is not finite."""


class Beta(Distribution):
    """``Beta(alpha, beta)`` for each component, both above 1. All weight lies within the bounds, where a Gaussian that is clipped to them has a
    bias. Source: Chou, Maturana & Scherer 2017, "Improving stochastic policy gradients in continuous control with deep reinforcement
    learning using the Beta distribution", section 4."""

    alpha: Float[Array, "*batch n"]
    beta: Float[Array, "*batch n"]

    @staticmethod
    def noise(key: Key[Array, ""], shape: tuple[int, ...]) -> UInt32[Array, "*batch 2"]:
        """The data of a key for each row: a Beta is sampled by rejection, which takes no fixed number of draws."""
        return jax.random.bits(key, (*shape, 2), "uint32")

    def sample(self, noise: UInt32[Array, "*batch 2"]) -> Float[Array, "*batch n"]:
        """``x / (x + y)`` of two Gamma variables."""

        def one(data: Array, alpha: Array, beta: Array) -> Array:
            return jax.random.beta(jax.random.wrap_key_data(data, impl="threefry2x32"), alpha, beta)

        n = self.alpha.shape[-1]
        drawn = jax.vmap(one)(noise.reshape((-1, 2)), self.alpha.reshape((-1, n)), self.beta.reshape((-1, n)))
        return jnp.clip(drawn.reshape(self.alpha.shape), _EDGE, 1.0 - _EDGE)

    def mode(self) -> Float[Array, "*batch n"]:
        """``(alpha - 1) / (alpha + beta - 2)``."""
        return (self.alpha - 1.0) / (self.alpha + self.beta - 2.0)

    def log_prob(self, action: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """``Σ (alpha - 1) log a + (beta - 1) log (1 - a) - log B(alpha, beta)``."""
        a = jnp.clip(action, _EDGE, 1.0 - _EDGE)
        log = (self.alpha - 1.0) * jnp.log(a) + (self.beta - 1.0) * jnp.log1p(-a)
        return jnp.sum(log - betaln(self.alpha, self.beta), axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """``Σ log B(alpha, beta) - (alpha - 1) ψ(alpha) - (beta - 1) ψ(beta) + (alpha + beta - 2) ψ(alpha + beta)``."""
        alpha, beta = self.alpha, self.beta
        spread = (alpha - 1.0) * digamma(alpha) + (beta - 1.0) * digamma(beta) - (alpha + beta - 2.0) * digamma(alpha + beta)
        return jnp.sum(betaln(alpha, beta) - spread, axis=-1)
