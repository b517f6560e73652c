"""One of ``n`` choices, or several choices at once."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from proximo.distributions.distribution import Distribution, Each, Numbers

Choice = Int[Array, "*batch"]


class Categorical(Distribution):
    """One of ``n`` choices: ``p_i = softmax(logits)_i``, for Discrete actions."""

    logits: Numbers

    def sample(self, noise: Numbers) -> Choice:
        """``argmax(logits + noise)``, which is distributed as ``p`` for standard Gumbel noise.

        Source: the Gumbel-max trick, as in Maddison, Tarlow & Minka 2014, arXiv:1411.0030.
        """
        return jnp.argmax(self.logits + noise, axis=-1)

    def mode(self) -> Choice:
        """The choice with the largest logit."""
        return jnp.argmax(self.logits, axis=-1)

    def log_prob(self, action: Choice) -> Each:
        """``log p_action``."""
        # One-hot rather than a gather: the gradient of a gather is a scatter, which is slow on all devices.
        chosen = jax.nn.one_hot(action, self.logits.shape[-1], dtype=self.logits.dtype)
        return jnp.sum(chosen * jax.nn.log_softmax(self.logits), axis=-1)

    def entropy(self) -> Each:
        """``-Σ p log p``."""
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


class ProductCategorical(Categorical):
    """Independent categorical components: ``p(a) = Π_k softmax(logits_k)_{a_k}``, for MultiDiscrete actions.

    ``logits`` has the shape ``[*batch, components, n]``, where ``n`` is the largest number of options.
    Components with fewer options are padded with the logit of a forbidden choice.
    """

    def log_prob(self, action: Int[Array, "*batch components"]) -> Each:
        """``Σ_k log p_{a_k}``."""
        return jnp.sum(super().log_prob(action), axis=-1)

    def entropy(self) -> Each:
        """``Σ_k -Σ p log p``."""
        return jnp.sum(super().entropy(), axis=-1)
