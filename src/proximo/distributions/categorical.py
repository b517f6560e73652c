"""One of ``n`` choices, or several choices at once."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from proximo.distributions.distribution import Distribution


class Categorical(Distribution):
    """One of ``n`` choices: ``p_i = softmax(logits)_i``, for Discrete actions."""

    logits: Float[Array, "*batch n"]

    def sample(self, noise: Float[Array, "*batch n"]) -> Int[Array, "*batch"]:
        """``argmax(logits + noise)``, which is distributed as ``p`` for standard Gumbel noise.

        Source: the Gumbel-max trick, as in Maddison, Tarlow & Minka 2014, arXiv:1411.0030.
        """
        return jnp.argmax(self.logits + noise, axis=-1)

    def mode(self) -> Int[Array, "*batch"]:
        """The choice with the largest logit."""
        return jnp.argmax(self.logits, axis=-1)

    def log_prob(self, action: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
        """``log p_action``."""
        # One-hot rather than a gather: the gradient of a gather is a scatter, which is slow on all devices.
        chosen = jax.nn.one_hot(action, self.logits.shape[-1], dtype=self.logits.dtype)
        return jnp.sum(chosen * jax.nn.log_softmax(self.logits), axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """``-Σ p log p``."""
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


class ProductCategorical(Categorical):
    """Independent categorical components: ``p(a) = Π_k softmax(logits_k)_{a_k}``, for MultiDiscrete actions.

    ``n`` is the largest number of options. Components with fewer options are padded with the logit of a
    forbidden choice.
    """

    logits: Float[Array, "*batch components n"]

    def log_prob(self, action: Int[Array, "*batch components"]) -> Float[Array, "*batch"]:
        """``Σ_k log p_{a_k}``."""
        return jnp.sum(super().log_prob(action), axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """``Σ_k -Σ p log p``."""
        return jnp.sum(super().entropy(), axis=-1)
