"""Gated recurrent unit."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from proximo.networks.recurrent.gated_cell import GatedCell, Projected


class GRU(GatedCell):
    """Gated recurrent unit: the state is its output.

    With projected inputs ``x`` and projected state ``h``: ``r, z = σ(x + h)``, ``n = tanh(x_n + r h_n)``,
    ``state' = (1 - z) n + z state``. As in cuDNN, the reset gate ``r`` is applied after the product.

    Source: Cho et al. 2014, arXiv:1406.1078, section 2.3.
    """

    num_gates = 3
    added_gates = 2

    @staticmethod
    def retention_bias(logits: Float[Array, " H"]) -> Float[Array, " G"]:
        zeros = jnp.zeros_like(logits)
        return jnp.concatenate([zeros, logits, zeros])

    @staticmethod
    def gates(x: Projected, h: Projected, state: Float[Array, "*batch H"]) -> Float[Array, "*batch H"]:
        split = 2 * state.shape[-1]
        reset, update = jnp.split(jax.nn.sigmoid(x[..., :split] + h[..., :split]), 2, axis=-1)
        candidate = jnp.tanh(x[..., split:] + reset * h[..., split:])
        return candidate + update * (state - candidate)
