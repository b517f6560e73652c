"""What the GRU and the LSTM have in common: projections outside the scan, gates inside."""

from __future__ import annotations

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from proximo.networks.layers import Linear
from proximo.networks.memory.memory import MemoryCell
from proximo.networks.memory.recurrence import hidden, recur, recur_step


class Recurrent(MemoryCell):
    """A cell given by its element-wise ``gates``."""

    input: Linear
    recurrent: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, size: int) -> Any:
        """Orthogonal weights gate by gate, zero bias."""
        parts = cls.num_gates()
        keys = jax.random.split(key, (2, parts))

        def stacked(keys: Key[Array, " gates"], rows: int) -> Linear:
            weights = [Linear.create(k, rows, size, gain=1.0).weight for k in keys]
            return Linear(jnp.concatenate(weights, axis=1), jnp.zeros(parts * size))

        return cls(stacked(keys[0], in_size), stacked(keys[1], size))

    @staticmethod
    @abc.abstractmethod
    def num_gates() -> int:
        """How many projections of ``H`` units the cell reads."""

    @staticmethod
    @abc.abstractmethod
    def gates(x: Float[Array, "*rows G"], h: Float[Array, "*rows G"], state: Any) -> Any:
        """Unit by unit: the state after a row, from the projected input, the projected hidden part and the state before."""

    @property
    def size(self) -> int:
        """Units ``H``."""
        return self.recurrent.weight.shape[0]

    def step(self, state: Any, x: Array, first: Array, valid: Array) -> tuple[Any, Array]:
        state = recur_step(self.gates, self.recurrent.weight, self.recurrent.bias, state, self.input(x), first, valid)
        return state, hidden(state)

    def unroll(self, state: Any, x: Array, first: Array, valid: Array) -> tuple[Any, Array]:
        return recur(self.gates, self.recurrent.weight, self.recurrent.bias, state, self.input(x), first, valid)
