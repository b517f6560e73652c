"""Memories whose state is linear in the state before: what minGRU and the LRU share.

``h_t = a_t h_{t-1} + b_t``, where ``a`` and ``b`` depend on the inputs only. So all rows' ``a`` and ``b`` are products before
the recurrence, and none is left inside it. On an accelerator the recurrence is an associative scan: logarithmic in time where
rows can be worked on side by side (Blelloch 1990, "Prefix sums and their applications"). That is more work in all, and a CPU,
which has few hands, goes through the rows in order, 2 to 8 times as fast (docs/decisions/0003-speed-on-the-cpu.md). The
gradient is such a recurrence backwards in time (Martin & Cundy 2018, arXiv:1709.04057, section 2.2).
"""

from __future__ import annotations

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Inexact, Key

from proximo.networks.layers import Linear
from proximo.networks.memory.memory import MemoryCell


def in_order(
    decay: Inexact[Array, "T ..."], drive: Inexact[Array, "T ..."], state: Inexact[Array, "..."]
) -> Inexact[Array, "T ..."]:
    """All ``h``, row after row."""

    def step(h: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        h = row[0] * h + row[1]
        return h, h

    return jax.lax.scan(step, state, (decay, drive))[1]


def in_order_backwards(decay: Inexact[Array, "T ..."], d_h: Inexact[Array, "T ..."]) -> Inexact[Array, "T ..."]:
    """The gradient by every drive, ``d_t = d_h_t + decay_{t+1} d_{t+1}``, last row first."""

    def step(from_later: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        d = from_later + row[1]
        return row[0] * d, d

    return jax.lax.scan(step, jnp.zeros_like(d_h[0]), (decay, d_h), reverse=True)[1]


def _combine(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
    return left[0] * right[0], right[0] * left[1] + right[1]


def side_by_side(
    decay: Inexact[Array, "T ..."], drive: Inexact[Array, "T ..."], state: Inexact[Array, "..."]
) -> Inexact[Array, "T ..."]:
    """What ``in_order`` comes to, by an associative scan."""
    return jax.lax.associative_scan(_combine, (decay, drive.at[0].add(decay[0] * state)))[1]


def side_by_side_backwards(decay: Inexact[Array, "T ..."], d_h: Inexact[Array, "T ..."]) -> Inexact[Array, "T ..."]:
    """What ``in_order_backwards`` comes to, by an associative scan."""
    later = jnp.concatenate([decay[1:], jnp.zeros_like(decay[:1])])
    return jax.lax.associative_scan(_combine, (later, d_h), reverse=True)[1]


@jax.custom_vjp
def linear_recurrence(
    decay: Inexact[Array, "T N H"], drive: Inexact[Array, "T N H"], state: Inexact[Array, "N H"]
) -> Inexact[Array, "T N H"]:
    """``h_t = decay_t h_{t-1} + drive_t`` for all rows, from ``state`` before the first."""
    return jax.lax.platform_dependent(decay, drive, state, cpu=in_order, default=side_by_side)


def _forward(decay: Array, drive: Array, state: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    h = linear_recurrence(decay, drive, state)
    return h, (decay, state, h)


def _backward(residuals: tuple[Array, Array, Array], d_h: Array) -> tuple[Array, Array, Array]:
    decay, state, h = residuals
    d_drive = jax.lax.platform_dependent(decay, d_h, cpu=in_order_backwards, default=side_by_side_backwards)
    before = jnp.concatenate([state[None], h[:-1]])
    return d_drive * before, d_drive, d_drive[0] * decay[0]


linear_recurrence.defvjp(_forward, _backward)


class LinearRecurrence(MemoryCell):
    """A residual block around a linear recurrence: ``u = W x``, the recurrence reads ``norm(u)``, and what it remembers
    enters through a gated linear unit beside ``u`` (the block of the LRU, section 3 and figure 1 of Orvieto et al. 2023)."""

    input: Linear
    output: Linear
    """From what was read to 2H: half of it gates the other (Dauphin et al. 2017, arXiv:1612.08083)."""

    @property
    def full_precision(self) -> bool:
        """Between 0.99 and 1 there are two numbers of bfloat16, and a state that is rounded after every step is not what the scan
        comes to."""
        return True

    @abc.abstractmethod
    def coefficients(self, u: Float[Array, "*rows H"]) -> tuple[Inexact[Array, "*rows S"], Inexact[Array, "*rows S"]]:
        """(decay, drive) of every row."""

    @abc.abstractmethod
    def read(self, h: Inexact[Array, "*rows S"], u: Float[Array, "*rows H"]) -> Float[Array, "*rows H"]:
        """What the block takes of the state."""

    @staticmethod
    @abc.abstractmethod
    def pack(h: Inexact[Array, "*rows S"]) -> Float[Array, "*rows ..."]:
        """The state as real numbers."""

    @staticmethod
    @abc.abstractmethod
    def unpack(state: Float[Array, "*rows ..."]) -> Inexact[Array, "*rows S"]:
        """The inverse of ``pack``."""

    @property
    def size(self) -> int:
        """Features ``H``."""
        return self.input.weight.shape[1]

    def step(self, state: Any, x: Array, first: Array, valid: Array) -> tuple[Any, Array]:
        u, v, decay, drive = self._rows(x, first, valid)
        h = decay * self.unpack(state) + drive
        return self.pack(h), self._out(h, u, v)

    def unroll(self, state: Any, x: Array, first: Array, valid: Array) -> tuple[Any, Array]:
        u, v, decay, drive = self._rows(x, first, valid)
        h = linear_recurrence(decay, drive, self.unpack(state))
        return self.pack(h[-1]), self._out(h, u, v)

    def _rows(self, x: Array, first: Bool[Array, "*rows"], valid: Bool[Array, "*rows"]) -> tuple[Array, Array, Array, Array]:
        """Input, normalised input, and the coefficients: a reset forgets all, a row that is not valid changes nothing."""
        u = self.input(x)
        v = rms_normalized(u)
        decay, drive = self.coefficients(v)
        decay = jnp.where(first[..., None], 0.0, jnp.where(valid[..., None], decay, 1.0))
        return u, v, decay, jnp.where(valid[..., None], drive, 0.0)

    def _out(self, h: Array, u: Array, v: Array) -> Array:
        value, gate = jnp.split(self.output(self.read(h, v)), 2, axis=-1)
        return u + value * jax.nn.sigmoid(gate)


def rms_normalized(x: Float[Array, "*rows H"]) -> Float[Array, "*rows H"]:
    """Each row over the root of its mean square (Zhang & Sennrich 2019, arXiv:1910.07467), without a gain: a product follows."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6)


def make_ends(key: Key[Array, ""], in_size: int, size: int) -> dict[str, Linear]:
    """The projections into and out of the block."""
    key_input, key_output = jax.random.split(key)
    return {
        "input": Linear.create(key_input, in_size, size, gain=1.0),
        "output": Linear.create(key_output, size, 2 * size, gain=1.0),
    }
