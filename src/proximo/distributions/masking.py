"""Action masks: the logits of forbidden actions are replaced, so only allowed actions have a probability.

Source: Huang & Ontañón 2022, "A closer look at invalid action masking in policy gradient algorithms",
arXiv:2006.14171.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool

from proximo.distributions.distribution import Numbers

FORBIDDEN = -1e9
"""Logit of a forbidden choice. It is finite, so that 0 · log p is 0; exp(-1e9) is 0 in every floating-point type."""
Mask = Bool[Array, "*batch n"]


def allowed(mask: Mask) -> Mask:
    """The mask; where it allows nothing, everything is allowed. Padding steps have masks of zeros, and still need an action."""
    return mask | ~jnp.any(mask, axis=-1, keepdims=True)


def mask_choices(logits: Numbers, mask: Mask) -> Numbers:
    """Logits by which choices where ``mask`` is false have probability 0 and gradient 0."""
    return jnp.where(allowed(mask), logits, FORBIDDEN)


def mask_bits(logits: Numbers, mask: Bool[Array, "*batch n 2"]) -> Numbers:
    """Logits by which forbidden values of bits have probability 0. ``mask``: whether each bit may be 0, and whether it may be 1."""
    may = allowed(mask)
    return jnp.where(may[..., 0], jnp.where(may[..., 1], logits, FORBIDDEN), -FORBIDDEN)
