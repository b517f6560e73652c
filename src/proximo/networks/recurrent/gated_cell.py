"""The base class of GRU and LSTM: projections of the inputs outside the scan, gates inside."""

import abc
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from proximo.config import NetworkConfig
from proximo.networks.cpu_kernels.gated_scan import hidden, recur, recur_step
from proximo.networks.layers import Linear
from proximo.networks.recurrent.protocol import MemoryCell

TIMESCALE_FOLD = 2**31
"""``fold_in`` data of the key that draws time scales. ``fold_in(key, i)`` equals ``split(key, n)[i]``."""
Projected = Float[Array, "*batch G"]


class GatedCell(MemoryCell):
    """A cell with ``H`` units. Inputs and hidden state are each projected to ``G = num_gates · H`` numbers. A
    subclass writes ``num_gates``, ``gates`` and ``retention_bias``; ``gated_scan`` computes recurrence and
    gradient."""

    num_gates: ClassVar[int]
    added_gates: ClassVar[int] = 0
    """Number of gates for which ``gates`` reads only the sum of both projections, for cheaper gradients; 0 is
    always correct."""
    input: Linear
    recurrent: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, config: NetworkConfig) -> Any:
        """A cell for ``in_size`` features, with orthogonal weights for each gate and biases of zero.

        With a ``horizon`` in ``memory_settings``, the biases let the states of the units last for 2 to
        ``horizon`` steps, drawn uniformly (chrono initialization, Tallec & Ollivier 2018, arXiv:1804.11188).
        """
        size, horizon = config.memory_size, config.memory_settings.horizon
        zero = bias = jnp.zeros(cls.num_gates * size)
        if horizon:
            steps = jax.random.uniform(jax.random.fold_in(key, TIMESCALE_FOLD), (size,), minval=2.0, maxval=float(horizon))
            bias = cls.retention_bias(jnp.log(steps - 1.0))  # each step keeps 1 - 1 / steps of the state
        weights = [
            jnp.concatenate([Linear.create(k, inputs, size, gain=1.0).weight for k in keys], axis=1)
            for keys, inputs in zip(jax.random.split(key, (2, cls.num_gates)), (in_size, size), strict=True)
        ]
        return cls(Linear(weights[0], bias), Linear(weights[1], zero))

    @staticmethod
    @abc.abstractmethod
    def retention_bias(logits: Float[Array, " H"]) -> Float[Array, " G"]:
        """Biases by which a unit keeps ``σ(logits)`` of its state at each step without inputs."""

    @staticmethod
    @abc.abstractmethod
    def gates(x: Projected, h: Projected, state: Any) -> Any:
        """The state after a step, unit by unit, from projected inputs ``x`` and projected hidden state ``h``.

        A state is an array ``[*batch, H]``, or a tuple of arrays whose first is the hidden state.
        """

    @property
    def size(self) -> int:
        """Number of units ``H``."""
        return self.recurrent.weight.shape[0]

    def init(self, batch: int) -> Any:
        return jnp.zeros((batch, self.size), self.recurrent.weight.dtype)

    def step(self, state: Any, x: Array, *flags: Array) -> tuple[Any, Array]:
        state, _ = recur_step(self.gates, self.recurrent.weight, self.recurrent.bias, state, self.input(x), *flags)
        return state, hidden(state)

    def unroll(self, state: Any, x: Array, *flags: Array) -> tuple[Any, Array]:
        weight, bias, added = self.recurrent.weight, self.recurrent.bias, self.added_gates * self.size
        return recur(self.gates, added, weight, bias, state, self.input(x), *flags)
