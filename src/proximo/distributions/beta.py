"""Independent Beta components, on the unit interval."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, UInt32

from proximo.distributions.distribution import Distribution, Each, Numbers

_EDGE = 1e-6
"""Distance of samples from 0 and 1, where the logarithm of the density is not finite."""

_LANCZOS = (
    76.18009172947146, -86.50532032941677, 24.01409824083091, -1.231739572450155, 1.208650973866179e-3, -5.395239384953e-6,
)  # fmt: skip


def _stirling_error(x: Array) -> Array:
    """``log Γ(x)`` minus Stirling's approximation ``(x - ½) log x - x + ½ log 2π``, for ``x ≥ 1``: by the
    series of Lanczos 1964 (Press et al. 1992, "Numerical recipes", section 6.1), which needs only functions
    that exported policies have."""
    series = 1.000000000190015 + sum(c / (x + 1.0 + i) for i, c in enumerate(_LANCZOS))
    return (x + 0.5) * jnp.log1p(5.5 / x) - 5.5 + jnp.log(series)


class Beta(Distribution):
    """Independent ``Beta(alpha, beta)`` components on 0 … 1, both parameters above 1, for bounded Box
    actions.

    Source: Chou, Maturana & Scherer 2017, "Improving stochastic policy gradients in continuous control with
    deep reinforcement learning using the Beta distribution".
    """

    alpha: Numbers
    beta: Numbers

    def sample(self, noise: UInt32[Array, "*batch 2"]) -> Numbers:
        """``noise`` is the data of one random key for each element: rejection sampling needs a variable number of draws."""
        keys, n = jax.random.wrap_key_data(noise.reshape((-1, 2)), impl="threefry2x32"), self.alpha.shape[-1]
        drawn = jax.vmap(jax.random.beta)(keys, self.alpha.reshape((-1, n)), self.beta.reshape((-1, n)))
        return jnp.clip(drawn.reshape(self.alpha.shape), _EDGE, 1.0 - _EDGE)

    def mode(self) -> Numbers:
        """``(alpha - 1) / (alpha + beta - 2)``; ½ where both parameters round to 1 and the density is uniform."""
        above = self.alpha + self.beta - 2.0
        return jnp.where(above > 0.0, (self.alpha - 1.0) / jnp.where(above > 0.0, above, 1.0), 0.5)

    def log_prob(self, action: Numbers) -> Each:
        """``Σ (alpha - 1) log a + (beta - 1) log (1 - a) - log B(alpha, beta)``."""
        # Relative to the mean: for a narrow density all three terms are large, and their sum would lose its digits in float32.
        a, (p, q) = jnp.clip(action, _EDGE, 1.0 - _EDGE), self._means()
        log = (self.alpha - 1.0) * jnp.log(a / p) + (self.beta - 1.0) * jnp.log((1.0 - a) / q)
        return jnp.sum(log - self._normalizer(), axis=-1)

    def entropy(self) -> Each:
        """``Σ log B(alpha, beta) - (alpha - 1) ψ(alpha) - (beta - 1) ψ(beta) + (alpha + beta - 2) ψ(alpha + beta)``."""

        def weighted(x, less):
            # For a large x, the difference of both logarithmic functions would lose its digits in float32: its asymptotic series instead.
            large, small = jnp.maximum(x, 32.0), jnp.minimum(x, 32.0)
            series = -0.5 / large - 1.0 / (12.0 * large**2) + 1.0 / (120.0 * large**4)
            return (x - less) * jnp.where(x > 32.0, series, digamma(small) - jnp.log(small))

        both = weighted(self.alpha + self.beta, 2.0)
        return jnp.sum(self._normalizer() - weighted(self.alpha, 1.0) - weighted(self.beta, 1.0) + both, axis=-1)

    def _means(self) -> tuple[Array, Array]:
        return self.alpha / (self.alpha + self.beta), self.beta / (self.alpha + self.beta)

    def _normalizer(self) -> Array:
        """``log B(alpha, beta) - (alpha - 1) log p - (beta - 1) log q`` with the means ``p``, ``q`` of ``a`` and ``1 - a``."""
        alpha, beta, both = self.alpha, self.beta, self.alpha + self.beta
        error = _stirling_error(alpha) + _stirling_error(beta) - _stirling_error(both)
        p, q = self._means()
        return jnp.log(p) + jnp.log(q) + 0.5 * jnp.log(2.0 * math.pi * (both / alpha) / beta) + error
