"""Independent bits."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from proximo.distributions.distribution import Distribution


class Bernoulli(Distribution):
    """Independent bits: ``p(bit_i = 1) = σ(logits_i)``, for MultiBinary actions."""

    logits: Float[Array, "*batch n"]

    def sample(self, noise: Float[Array, "*batch n"]) -> Int[Array, "*batch n"]:
        """1 where ``logits + noise > 0``, which has the probability ``σ(logits)`` for standard logistic noise."""
        return (self.logits + noise > 0).astype(jnp.int32)

    def mode(self) -> Int[Array, "*batch n"]:
        """1 where its probability is above ½, else 0."""
        return (self.logits > 0).astype(jnp.int32)

    def log_prob(self, action: Int[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """``Σ log σ(± logits)``, by ``log σ(x) = -softplus(-x)``."""
        return -jnp.sum(jax.nn.softplus(jnp.where(action == 1, -self.logits, self.logits)), axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """``Σ -p log p - (1 - p) log(1 - p)``."""
        x = self.logits
        return jnp.sum(jax.nn.sigmoid(x) * jax.nn.softplus(-x) + jax.nn.sigmoid(-x) * jax.nn.softplus(x), axis=-1)
