"""A choice between two pytrees."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree


def select(condition: Bool[Array, "*batch"], this: PyTree, other: PyTree) -> PyTree:
    """``jnp.where`` for pytrees of arrays ``[*batch, ...]`` that have the leading axes of ``condition``."""

    def pick(a, b):
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - condition.ndim)), a, b)

    return jax.tree.map(pick, this, other)
