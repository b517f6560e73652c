"""Generalised state-dependent exploration."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from proximo.distributions.gaussian import Gaussian


class StateDependentGaussian(Gaussian):
    """``mean + Wᵀ φ`` with a matrix ``W`` of independent ``N(0, exp(log_std)²)``, kept for several steps: noise that is a smooth
    function of the features ``φ``. Given ``φ`` each row is a Gaussian of variance ``Σ φ² exp(log_std)²``, which is what
    log-probability and entropy are of.

    Source: Raffin et al. 2021, arXiv:2005.05719, section 3.
    """

    features: Float[Array, "*batch features"]
    matrix_log_std: Float[Array, "features n"]

    @classmethod
    def of(
        cls, mean: Float[Array, "*batch n"], features: Float[Array, "*batch features"], log_std: Float[Array, "features n"]
    ) -> "StateDependentGaussian":
        """For the features that the matrix is multiplied with."""
        variance = jnp.square(features) @ jnp.exp(2.0 * log_std)
        return cls(mean, 0.5 * jnp.log(variance + 1e-6), features, log_std)

    @staticmethod
    def matrices(
        key: Key[Array, ""], shape: tuple[int, ...], every: int, features: int, n: int
    ) -> Float[Array, "*batch features n"]:
        """Standard normal matrices for a batch of ``shape``; with a time axis in front, one for each ``every`` rows of it."""
        time, rest = (shape[0], shape[1:]) if len(shape) > 1 else (1, shape)
        drawn = jax.random.normal(key, (math.ceil(time / every), *rest, features, n))
        return jnp.repeat(drawn, every, axis=0)[:time].reshape((*shape, features, n))

    def sample(self, noise: Float[Array, "*batch features n"]) -> Float[Array, "*batch n"]:
        """``mean + φ (std ⊙ noise)``."""
        return self.mean + jnp.einsum("...f,...fn->...n", self.features, jnp.exp(self.matrix_log_std) * noise)
