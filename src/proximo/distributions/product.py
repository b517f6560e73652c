"""Several choices at once, each with its own number of options."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from proximo.distributions.categorical import Categorical


class ProductCategorical(Categorical):
    """Independent categorical components: ``p(a) = Π_k softmax(logits_k)_{a_k}``, for MultiDiscrete actions.

    ``n`` is the largest number of options. Components with fewer options are padded with the logit of a forbidden choice.
    """

    logits: Float[Array, "*batch components n"]

    def log_prob(self, action: Int[Array, "*batch components"]) -> Float[Array, "*batch"]:
        """``Σ_k log p_{a_k}``."""
        return jnp.sum(super().log_prob(action), axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """``Σ_k -Σ p log p``."""
        return jnp.sum(super().entropy(), axis=-1)
