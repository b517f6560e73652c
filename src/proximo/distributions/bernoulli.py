"""Independent bits."""

import jax
import jax.numpy as jnp

from proximo.distributions.distribution import Distribution, Each, Integers, Numbers


class Bernoulli(Distribution):
    """Independent bits: ``p(bit_i = 1) = σ(logits_i)``, for MultiBinary actions."""

    logits: Numbers

    def sample(self, noise: Numbers) -> Integers:
        """1 where ``logits + noise > 0``, which has the probability ``σ(logits)`` for standard logistic noise."""
        return (self.logits + noise > 0).astype(jnp.int32)

    def mode(self) -> Integers:
        """1 where its probability is above ½, else 0."""
        return (self.logits > 0).astype(jnp.int32)

    def log_prob(self, action: Integers) -> Each:
        """``Σ log σ(± logits)``, by ``log σ(x) = -softplus(-x)``."""
        return -jnp.sum(jax.nn.softplus(jnp.where(action == 1, -self.logits, self.logits)), axis=-1)

    def entropy(self) -> Each:
        """``Σ -p log p - (1 - p) log(1 - p)``."""
        x = self.logits
        return jnp.sum(jax.nn.sigmoid(x) * jax.nn.softplus(-x) + jax.nn.sigmoid(-x) * jax.nn.softplus(x), axis=-1)
