"""Gated recurrent unit."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from proximo.networks.memory.recurrent import Recurrent


class GRU(Recurrent):
    """``r, z = σ(x + h)``, ``n = tanh(x_n + r h_n)``, ``h' = (1 - z) n + z h`` with projected ``x`` and ``h``.

    Source: Cho et al. 2014, arXiv:1406.1078, section 2.3; the reset gate behind the product as in cuDNN.
    """

    @staticmethod
    def num_gates() -> int:
        return 3

    @staticmethod
    def keeping(logits: Float[Array, " H"]) -> Float[Array, " G"]:
        none = jnp.zeros_like(logits)
        return jnp.concatenate([none, logits, none])

    @staticmethod
    def gates(x: Float[Array, "*rows G"], h: Float[Array, "*rows G"], state: Float[Array, "*rows H"]) -> Float[Array, "*rows H"]:
        split = 2 * state.shape[-1]
        reset, update = jnp.split(jax.nn.sigmoid(x[..., :split] + h[..., :split]), 2, axis=-1)
        candidate = jnp.tanh(x[..., split:] + reset * h[..., split:])
        return candidate + update * (state - candidate)

    def init(self, batch: int) -> Float[Array, "N H"]:
        return jnp.zeros((batch, self.size), self.recurrent.weight.dtype)
