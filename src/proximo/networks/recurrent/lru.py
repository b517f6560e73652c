"""Linear recurrent unit."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, Key

from proximo.config import NetworkConfig
from proximo.networks.layers import Linear
from proximo.networks.recurrent.linear_recurrence import LinearRecurrence, make_projections

MIN_HORIZON, MAX_HORIZON = 2.0, 1000.0
"""Range of the initial horizons, in steps. After a long horizon, about a third of an input remains."""
State = Complex[Array, "*batch H"]
Packed = Float[Array, "*batch twice_H"]


class LRU(LinearRecurrence):
    """Linear recurrent unit: a complex linear recurrence with one eigenvalue ``λ`` for each unit.

    ``h' = λ h + γ B u``, ``y = Re(C h) + D u``. ``λ = exp(-exp(ν) + iθ)`` lies inside the unit circle, and
    ``γ`` begins as ``√(1 - |λ|²)``. At first, horizons ``1 / (1 - |λ|)`` are log-uniform, and phases ``θ``
    are ``π`` times the square of a uniform number: many units hardly rotate, and can keep an input. With
    ``λ`` uniform on a ring, as in the source, two of three policies did not remember their first observation
    (decision 0012).

    Source: Orvieto et al. 2023, arXiv:2303.06349, sections 3.2 to 3.4.
    """

    log_decay: Float[Array, " H"]
    """``ν``."""
    phase: Float[Array, " H"]
    """``θ``, in radians."""
    log_gamma: Float[Array, " H"]
    write: Linear
    """``B``: to the real and imaginary parts of the drive."""
    reader: Linear
    """``C``: from the real and imaginary parts of the state."""
    skip: Float[Array, " H"]
    """``D``."""

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, config: NetworkConfig) -> "LRU":
        """A cell for ``in_size`` features, with orthogonal weights."""
        size = config.memory_size
        key_projections, key_horizon, key_phase, key_write, key_reader = jax.random.split(key, 5)
        radius = 1.0 - (MIN_HORIZON / MAX_HORIZON) ** jax.random.uniform(key_horizon, (size,)) / MIN_HORIZON
        return cls(
            **make_projections(key_projections, in_size, size),
            log_decay=jnp.log(-jnp.log(radius)),
            phase=math.pi * jax.random.uniform(key_phase, (size,)) ** 2,
            log_gamma=0.5 * jnp.log(1.0 - radius**2),
            write=Linear.create(key_write, size, 2 * size, gain=1.0),
            reader=Linear.create(key_reader, 2 * size, size, gain=1.0),
            skip=jnp.ones(size),
        )

    def init(self, batch: int) -> Packed:
        return jnp.zeros((batch, 2 * self.size), self.input.weight.dtype)

    def step(self, state: Packed, x: Array, *flags: Array) -> tuple[Packed, Array]:
        state, out = super().step(_unpacked(state), x, *flags)
        return _packed(state), out

    def unroll(self, state: Packed, x: Array, *flags: Array) -> tuple[Packed, Array]:
        state, out = super().unroll(_unpacked(state), x, *flags)
        return _packed(state), out

    def coefficients(self, u: Array) -> tuple[State, State]:
        drive = _unpacked(self.write(u)) * jnp.exp(self.log_gamma)
        radius = jnp.exp(-jnp.exp(self.log_decay))
        decay = _unpacked(jnp.concatenate([radius * jnp.cos(self.phase), radius * jnp.sin(self.phase)]))
        return jnp.broadcast_to(decay, drive.shape), drive

    def read(self, h: State, u: Float[Array, "*batch H"]) -> Float[Array, "*batch H"]:
        return self.reader(_packed(h)) + self.skip * u


def _packed(h: State) -> Packed:
    """The state as real numbers, as rollouts store it."""
    return jnp.concatenate([h.real, h.imag], axis=-1)


def _unpacked(state: Packed) -> State:
    wide = state.astype(jnp.promote_types(state.dtype, jnp.float32))  # JAX has no 16-bit complex numbers
    return jax.lax.complex(*jnp.split(wide, 2, axis=-1))
