"""Long short-term memory."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from proximo.networks.recurrent.gated_cell import GatedCell, Projected

FORGET_BIAS = 1.0
LSTMState = tuple[Float[Array, "*batch H"], Float[Array, "*batch H"]]


class LSTM(GatedCell):
    """Long short-term memory: the state is ``(h, c)`` and ``h`` is its output.

    With the sum of projected inputs and projected hidden state: ``i, f, o = σ``, ``g = tanh``, then ``c' = f
    c + i g``, ``h' = o tanh(c')``. ``FORGET_BIAS`` is added to the forget gate ``f``, which starts open.

    Sources: Hochreiter & Schmidhuber 1997; Gers, Schmidhuber & Cummins 2000, for the forget gate; Jozefowicz,
    Zaremba & Sutskever 2015, for its bias.
    """

    num_gates = 4
    added_gates = 4

    @staticmethod
    def retention_bias(logits: Float[Array, " H"]) -> Float[Array, " G"]:
        zeros = jnp.zeros_like(logits)
        return jnp.concatenate([-logits, logits - FORGET_BIAS, zeros, zeros])  # i = 1 - f

    @staticmethod
    def gates(x: Projected, h: Projected, state: LSTMState) -> LSTMState:
        into, forget, out, candidate = jnp.split(x + h, 4, axis=-1)
        cell = jax.nn.sigmoid(forget + FORGET_BIAS) * state[1] + jax.nn.sigmoid(into) * jnp.tanh(candidate)
        return jax.nn.sigmoid(out) * jnp.tanh(cell), cell

    def init(self, batch: int) -> LSTMState:
        zeros = super().init(batch)
        return zeros, zeros
