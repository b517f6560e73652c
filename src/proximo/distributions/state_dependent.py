"""Generalized state-dependent exploration (gSDE)."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from proximo.distributions.distribution import Numbers
from proximo.distributions.gaussian import Gaussian


class StateDependentGaussian(Gaussian):
    """``mean + Wᵀ φ``: noise that is a smooth function of the features ``φ``.

    ``W`` is a matrix of independent ``N(0, exp(matrix_log_std)²)`` numbers, kept for several steps. Given
    ``φ``, an action is a Gaussian of variance ``Σ φ² exp(matrix_log_std)²``; log-probability and entropy are
    those of this Gaussian.

    Source: Raffin et al. 2021, arXiv:2005.05719, section 3.
    """

    features: Float[Array, "*batch features"]
    matrix_log_std: Float[Array, "features n"]

    @classmethod
    def of(cls, mean: Array, features: Array, log_std: Array) -> "StateDependentGaussian":
        """The distribution with these means, the features ``φ``, and the log standard deviations of the matrix."""
        variance = jnp.square(features) @ jnp.exp(2.0 * log_std)
        return cls(mean, 0.5 * jnp.log(variance + 1e-6), features, log_std)

    @staticmethod
    def matrices(key: Key[Array, ""], shape: tuple[int, ...], every: int, *size: int) -> Float[Array, "..."]:
        """Standard normal matrices for a batch of ``shape``, each kept for ``every`` steps. The first of two or more axes is time."""
        time, rest = (shape[0], shape[1:]) if len(shape) > 1 else (1, shape)
        every = max(1, min(every, time))
        drawn = jax.random.normal(key, (math.ceil(time / every), *rest, *size))
        return jnp.repeat(drawn, every, axis=0)[:time].reshape((*shape, *size))

    def sample(self, noise: Float[Array, "*batch features n"]) -> Numbers:
        """``mean + φ (std ⊙ noise)``."""
        return self.mean + jnp.einsum("...f,...fn->...n", self.features, jnp.exp(self.matrix_log_std) * noise)
