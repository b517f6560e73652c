"""Several choices at once, each with its own number of options."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from proximo.distributions.categorical import Categorical
from proximo.distributions.distribution import Distribution


class ProductCategorical(Distribution):
    """Independent categorical components: ``p(a) = Π_k softmax(logits_k)_{a_k}``, for MultiDiscrete actions.

    ``n`` is the largest number of options. Components with fewer options are padded with the logit of a forbidden choice.
    """

    logits: Float[Array, "*batch components n"]

    @staticmethod
    def noise(key: Key[Array, ""], shape: tuple[int, ...], components: int, n: int) -> Float[Array, "*batch components n"]:
        """Standard Gumbel noise for a batch of ``shape``."""
        return Categorical.noise(key, (*shape, components), n)

    def sample(self, noise: Float[Array, "*batch components n"]) -> Int[Array, "*batch components"]:
        """The choice of each component, as ``Categorical.sample``."""
        return Categorical(self.logits).sample(noise)

    def mode(self) -> Int[Array, "*batch components"]:
        """The choices with the largest logits."""
        return Categorical(self.logits).mode()

    def log_prob(self, action: Int[Array, "*batch components"]) -> Float[Array, "*batch"]:
        """``Σ_k log p_{a_k}``."""
        return jnp.sum(Categorical(self.logits).log_prob(action), axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """``Σ_k -Σ p log p``."""
        return jnp.sum(Categorical(self.logits).entropy(), axis=-1)
