"""Actions that are not allowed: their logits are replaced, so that the rest is a distribution over the allowed ones.

Source: Huang & Ontañón 2022, "A closer look at invalid action masking in policy gradient algorithms", arXiv:2006.14171.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# Finite, so that 0 · log p is 0 and a sum of several is no infinity; exp(-1e9) is 0 in every type.
FORBIDDEN = -1e9


def allowed(mask: Bool[Array, "*batch n"]) -> Bool[Array, "*batch n"]:
    """The mask, or everything where it allows nothing: filler rows carry zeros, and something must be done in them."""
    return mask | ~jnp.any(mask, axis=-1, keepdims=True)


def mask_choices(logits: Float[Array, "*batch n"], mask: Bool[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """Logits of a categorical whose forbidden choices have probability 0 and gradient 0."""
    return jnp.where(allowed(mask), logits, FORBIDDEN)


def mask_bits(logits: Float[Array, "*batch n"], mask: Bool[Array, "*batch n 2"]) -> Float[Array, "*batch n"]:
    """Logits of bits of which ``mask`` says whether they may be 0 and may be 1."""
    may = allowed(mask)
    return jnp.where(may[..., 0], jnp.where(may[..., 1], logits, FORBIDDEN), -FORBIDDEN)
