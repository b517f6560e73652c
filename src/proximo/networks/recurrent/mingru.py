"""Minimal gated recurrent unit."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from proximo.config import NetworkConfig
from proximo.networks.layers import Linear
from proximo.networks.recurrent.linear_recurrence import LinearRecurrence, make_projections

MAX_STEPS = 64.0


class MinGRU(LinearRecurrence):
    """Minimal gated recurrent unit: a GRU whose gate does not read the state.

    ``h' = (1 - z) h + z ĥ`` with ``z = σ(W_z u)``, ``ĥ = W_h u``. Initially the states of the units last for
    2 to ``MAX_STEPS + 1`` steps, so some units remember from the start.

    Source: Feng et al. 2024, arXiv:2410.01201, section 3.1.
    """

    gate: Linear
    candidate: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, config: NetworkConfig) -> "MinGRU":
        """A cell for ``in_size`` features, with orthogonal weights."""
        size = config.memory_size
        key_projections, key_gate, key_candidate = jax.random.split(key, 3)
        gate = Linear.create(key_gate, size, size, gain=1.0)
        steps = MAX_STEPS ** jnp.linspace(0.0, 1.0, size)
        return cls(
            **make_projections(key_projections, in_size, size),
            gate=Linear(gate.weight, -jnp.log(steps)),
            candidate=Linear.create(key_candidate, size, size, gain=1.0),
        )

    def coefficients(self, u: Float[Array, "*batch H"]) -> tuple[Array, Array]:
        z = jax.nn.sigmoid(self.gate(u))
        return 1.0 - z, z * self.candidate(u)
