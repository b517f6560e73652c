"""Linear recurrent unit."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, Key

from proximo.networks.layers import Linear
from proximo.networks.memory.linear_recurrence import LinearRecurrence, make_ends

SMALLEST, LARGEST = 0.5, 0.99


class LRU(LinearRecurrence):
    """``h' = λ h + γ B u``, ``y = Re(C h) + D u`` with complex ``λ`` of its own for each unit, inside the unit circle by
    ``λ = exp(-exp(ν) + iθ)``; ``γ`` begins as ``√(1 - |λ|²)``.

    Source: Orvieto et al. 2023, arXiv:2303.06349, sections 3.2-3.4. ``|λ|`` begins between ``SMALLEST`` and ``LARGEST``, with all
    phases: a bank of filters that tells rows apart by their age.
    """

    log_decay: Float[Array, " H"]
    phase: Float[Array, " H"]
    log_gamma: Float[Array, " H"]
    write: Linear
    """To the real and the imaginary parts of the drive."""
    reader: Linear
    """From the real and the imaginary parts of the state."""
    skip: Float[Array, " H"]

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, size: int) -> LRU:
        """Orthogonal weights; ``λ`` uniform over its ring (lemma 3.2)."""
        key_ends, key_radius, key_phase, key_write, key_reader = jax.random.split(key, 5)
        square = jax.random.uniform(key_radius, (size,), minval=SMALLEST**2, maxval=LARGEST**2)
        return cls(
            **make_ends(key_ends, in_size, size),
            log_decay=jnp.log(-0.5 * jnp.log(square)),
            phase=jax.random.uniform(key_phase, (size,), maxval=math.pi),
            log_gamma=0.5 * jnp.log(1.0 - square),
            write=Linear.create(key_write, size, 2 * size, gain=1.0),
            reader=Linear.create(key_reader, 2 * size, size, gain=1.0),
            skip=jnp.ones(size),
        )

    def init(self, batch: int) -> Float[Array, "N twice_H"]:
        return jnp.zeros((batch, 2 * self.size), self.input.weight.dtype)

    def coefficients(self, u: Float[Array, "*rows H"]) -> tuple[Complex[Array, "*rows H"], Complex[Array, "*rows H"]]:
        drive = self.unpack(self.write(u)) * jnp.exp(self.log_gamma)
        radius = jnp.exp(-jnp.exp(self.log_decay))
        decay = self.unpack(jnp.concatenate([radius * jnp.cos(self.phase), radius * jnp.sin(self.phase)]))
        return jnp.broadcast_to(decay, drive.shape), drive

    def read(self, h: Complex[Array, "*rows H"], u: Float[Array, "*rows H"]) -> Float[Array, "*rows H"]:
        return self.reader(self.pack(h)) + self.skip * u

    @staticmethod
    def pack(h: Complex[Array, "*rows H"]) -> Float[Array, "*rows twice_H"]:
        return jnp.concatenate([h.real, h.imag], axis=-1)

    @staticmethod
    def unpack(state: Float[Array, "*rows twice_H"]) -> Complex[Array, "*rows H"]:
        wide = state.astype(jnp.promote_types(state.dtype, jnp.float32))  # there are no complex numbers of 16 bits
        return jax.lax.complex(*jnp.split(wide, 2, axis=-1))
