"""Minimal gated recurrent unit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from proximo.networks.layers import Linear
from proximo.networks.memory.linear_recurrence import LinearRecurrence, make_ends

LONGEST = 64.0


class MinGRU(LinearRecurrence):
    """``h' = (1 - z) h + z ĥ`` with ``z = σ(W_z u)``, ``ĥ = W_h u``: a GRU whose gate does not read the state.

    Source: Feng et al. 2024, arXiv:2410.01201, section 3.1. The states of fresh units last for 2 to ``LONGEST + 1`` rows, so
    that some units remember from the start.
    """

    gate: Linear
    candidate: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, size: int) -> MinGRU:
        """Orthogonal weights."""
        key_ends, key_gate, key_candidate = jax.random.split(key, 3)
        gate = Linear.create(key_gate, size, size, gain=1.0)
        rows = LONGEST ** jnp.linspace(0.0, 1.0, size)
        return cls(
            **make_ends(key_ends, in_size, size),
            gate=Linear(gate.weight, -jnp.log(rows)),
            candidate=Linear.create(key_candidate, size, size, gain=1.0),
        )

    def init(self, batch: int) -> Float[Array, "N H"]:
        return jnp.zeros((batch, self.size), self.input.weight.dtype)

    def coefficients(self, u: Float[Array, "*rows H"]) -> tuple[Array, Array]:
        z = jax.nn.sigmoid(self.gate(u))
        return 1.0 - z, z * self.candidate(u)

    def read(self, h: Array, u: Array) -> Array:
        return h

    @staticmethod
    def pack(h: Any) -> Any:
        return h

    @staticmethod
    def unpack(state: Any) -> Any:
        return state
