"""Long short-term memory."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from proximo.networks.memory.recurrent import Recurrent

FORGET = 1.0
LSTMState = tuple[Float[Array, "*rows H"], Float[Array, "*rows H"]]


class LSTM(Recurrent):
    """``i, f, o = σ``, ``g = tanh`` of ``x + h``; ``c' = f c + i g``, ``h' = o tanh(c')``; the state is ``(h, c)``.

    The forget gate starts open (``FORGET`` is added before σ). Sources: Hochreiter & Schmidhuber 1997; Gers et al. 2000 for the
    forget gate; Jozefowicz et al. 2015, section 2.2, for its bias.
    """

    @staticmethod
    def num_gates() -> int:
        return 4

    @staticmethod
    def keeping(logits: Float[Array, " H"]) -> Float[Array, " G"]:
        none = jnp.zeros_like(logits)
        return jnp.concatenate([-logits, logits - FORGET, none, none])  # as little enters as is lost

    @staticmethod
    def gates(x: Float[Array, "*rows G"], h: Float[Array, "*rows G"], state: LSTMState) -> LSTMState:
        into, forget, out, candidate = jnp.split(x + h, 4, axis=-1)
        cell = jax.nn.sigmoid(forget + FORGET) * state[1] + jax.nn.sigmoid(into) * jnp.tanh(candidate)
        return jax.nn.sigmoid(out) * jnp.tanh(cell), cell

    def init(self, batch: int) -> LSTMState:
        zeros = jnp.zeros((batch, self.size), self.recurrent.weight.dtype)
        return zeros, zeros
