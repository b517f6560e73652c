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

HORIZON = 2**31
"""``fold_in`` data of the key that draws the time scales of units. ``fold_in(key, i)`` equals ``split(key, n)[i]``, and small ``i`` draw weights."""


class Recurrent(MemoryCell):
    """A cell given by its element-wise ``gates``."""

    input: Linear
    recurrent: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, size: int, horizon: int = 0) -> Any:
        """Orthogonal weights gate by gate, zero bias; with a ``horizon`` of 3 rows or more, biases by which a unit's state lasts
        for 2 to ``horizon`` rows, drawn uniformly (chrono initialisation: Tallec & Ollivier 2018,
        arXiv:1804.11188)."""
        parts = cls.num_gates()
        keys = jax.random.split(key, (2, parts))

        def stacked(keys: Key[Array, " gates"], rows: int, bias: Float[Array, " G"]) -> Linear:
            weights = [Linear.create(k, rows, size, gain=1.0).weight for k in keys]
            return Linear(jnp.concatenate(weights, axis=1), bias)

        bias = jnp.zeros(parts * size)
        if horizon:
            lasting = jax.random.uniform(jax.random.fold_in(key, HORIZON), (size,), minval=2.0, maxval=float(horizon))
            bias = cls.keeping(jnp.log(lasting - 1.0))  # so that 1 - 1 / lasting of the state is kept in each row
        return cls(stacked(keys[0], in_size, bias), stacked(keys[1], size, jnp.zeros_like(bias)))

    @staticmethod
    @abc.abstractmethod
    def num_gates() -> int:
        """How many projections of ``H`` units the cell reads."""

    @staticmethod
    @abc.abstractmethod
    def keeping(logits: Float[Array, " H"]) -> Float[Array, " G"]:
        """The biases by which a unit keeps ``σ(logits)`` of its state from row to row, inputs and projections being zero."""

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
