"""The base class of minGRU and LRU: memories whose state is linear in the state before.

``h_t = decay_t h_{t-1} + drive_t``, where ``decay`` and ``drive`` depend on the inputs only, so they are
computed for all steps before the recurrence. On an accelerator it is an associative scan (Blelloch 1990,
"Prefix sums and their applications"). On a CPU a sequential scan is 2 to 8 times as fast
(docs/decisions/0003-speed-on-the-cpu.md). The gradient is the same recurrence backwards in time (Martin &
Cundy 2018, arXiv:1709.04057)."""

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact, Key

from proximo.networks.layers import Linear
from proximo.networks.recurrent.protocol import MemoryCell

State = Inexact[Array, "N H"]
Steps = Inexact[Array, "T N H"]


def sequential_scan(decay: Steps, drive: Steps, state: State) -> Steps:
    """``h`` of all steps from ``state`` before the first, one step after the other."""

    def step(h, inputs):
        h = inputs[0] * h + inputs[1]
        return h, h

    return jax.lax.scan(step, state, (decay, drive))[1]


def sequential_scan_backwards(decay: Steps, d_h: Steps) -> Steps:
    """The gradient of each drive, ``d_t = d_h_t + decay_{t+1} d_{t+1}``, from the last step to the first."""

    def step(later, inputs):
        d = later + inputs[1]
        return inputs[0] * d, d

    return jax.lax.scan(step, jnp.zeros_like(d_h[0]), (decay, d_h), reverse=True)[1]


def _combine(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
    return left[0] * right[0], right[0] * left[1] + right[1]


def associative_scan(decay: Steps, drive: Steps, state: State) -> Steps:
    """``sequential_scan`` by an associative scan."""
    return jax.lax.associative_scan(_combine, (decay, drive.at[0].add(decay[0] * state)))[1]


def associative_scan_backwards(decay: Steps, d_h: Steps) -> Steps:
    """``sequential_scan_backwards`` by an associative scan."""
    later = jnp.concatenate([decay[1:], jnp.zeros_like(decay[:1])])
    return jax.lax.associative_scan(_combine, (later, d_h), reverse=True)[1]


@jax.custom_vjp
def linear_recurrence(decay: Steps, drive: Steps, state: State) -> Steps:
    """``h_t = decay_t h_{t-1} + drive_t`` of each step, real or complex, from ``state`` before the first."""
    return jax.lax.platform_dependent(decay, drive, state, cpu=sequential_scan, default=associative_scan)


def _forward(decay: Array, drive: Array, state: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    h = linear_recurrence(decay, drive, state)
    return h, (decay, state, h)


def _backward(residuals: tuple[Array, Array, Array], d_h: Array) -> tuple[Array, Array, Array]:
    decay, state, h = residuals
    d_drive = jax.lax.platform_dependent(decay, d_h, cpu=sequential_scan_backwards, default=associative_scan_backwards)
    previous = jnp.concatenate([state[None], h[:-1]])
    return d_drive * previous, d_drive, d_drive[0] * decay[0]


linear_recurrence.defvjp(_forward, _backward)


class LinearRecurrence(MemoryCell):
    """A residual block around a linear recurrence with ``H`` features.

    The recurrence reads ``norm(u)`` with ``u = W x``. The output is ``u`` plus a gated linear unit of ``read(h)``.
    A subclass writes ``create`` and ``coefficients`` (Orvieto et al. 2023, arXiv:2303.06349, figure 1).
    """

    input: Linear
    output: Linear
    """From what is read to 2H numbers: one half gates the other (Dauphin et al. 2017, arXiv:1612.08083)."""

    @property
    def full_precision(self) -> bool:
        """True: bfloat16 has two numbers between 0.99 and 1, and ``step`` would round differently from the scan."""
        return True

    @property
    def size(self) -> int:
        """Number of features ``H``."""
        return self.input.weight.shape[1]

    @abc.abstractmethod
    def coefficients(self, u: Float[Array, "*batch H"]) -> tuple[Inexact[Array, "*batch S"], Inexact[Array, "*batch S"]]:
        """``decay`` and ``drive`` of each step, from ``norm(u)``."""

    def read(self, h: Array, u: Float[Array, "*batch H"]) -> Float[Array, "*batch H"]:
        """The inputs of the gated linear unit, from the state ``h`` after each step and ``norm(u)``."""
        return h

    def init(self, batch: int) -> Float[Array, "N ..."]:
        return jnp.zeros((batch, self.size), self.input.weight.dtype)

    def step(self, state: Array, x: Array, *flags: Array) -> tuple[Array, Array]:
        return self._recur(lambda decay, drive, h: decay * h + drive, state, x, *flags)

    def unroll(self, state: Array, x: Array, *flags: Array) -> tuple[Array, Array]:
        h, out = self._recur(linear_recurrence, state, x, *flags)
        return h[-1], out

    def _recur(self, recurrence: Any, state: Array, x: Array, episode_start: Array, valid: Array) -> tuple[Array, Array]:
        """The states after each step, and the outputs. A decay of 0 resets; on padding, 1 and a drive of 0 change nothing."""
        u = self.input(x)
        v = rms_normalized(u)
        decay, drive = self.coefficients(v)
        decay = jnp.where(episode_start[..., None], 0.0, jnp.where(valid[..., None], decay, 1.0))
        h = recurrence(decay, jnp.where(valid[..., None], drive, 0.0), state)
        return h, self._out(h, u, v)

    def _out(self, h: Array, u: Array, v: Array) -> Array:
        value, gate = jnp.split(self.output(self.read(h, v)), 2, axis=-1)
        return u + value * jax.nn.sigmoid(gate)


def rms_normalized(x: Float[Array, "*batch H"]) -> Float[Array, "*batch H"]:
    """Divide by the root mean square (Zhang & Sennrich 2019, arXiv:1910.07467), without a gain: a product follows."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6)


def make_projections(key: Key[Array, ""], in_size: int, size: int) -> dict[str, Linear]:
    """Make the projections into and out of the block, as arguments of the class."""
    keys = jax.random.split(key)
    return {"input": Linear.create(keys[0], in_size, size, gain=1.0), "output": Linear.create(keys[1], size, 2 * size, gain=1.0)}
