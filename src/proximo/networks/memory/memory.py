"""The one protocol of memories."""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree


class MemoryCell(eqx.Module):
    """Turns features into features, and remembers. A memory state is a pytree of arrays ``N ...``.

    Law: ``scan(step) == unroll``. In both, ``first`` resets the state before its row is read, and a row that is not
    ``valid`` leaves the state as it was.
    """

    @property
    def full_precision(self) -> bool:
        """Whether it computes in the parameters' own type, whatever ``compute_dtype`` is."""
        return False

    @abc.abstractmethod
    def init(self, batch: int) -> PyTree[Float[Array, "N ..."]]:
        """The empty memory of ``batch`` environments."""

    @abc.abstractmethod
    def step(
        self, state: PyTree, x: Float[Array, "N features"], first: Bool[Array, " N"], valid: Bool[Array, " N"]
    ) -> tuple[PyTree, Float[Array, "N out"]]:
        """One row: the state after it, and its output."""

    @abc.abstractmethod
    def unroll(
        self, state: PyTree, x: Float[Array, "T N features"], first: Bool[Array, "T N"], valid: Bool[Array, "T N"]
    ) -> tuple[PyTree, Float[Array, "T N out"]]:
        """``T`` rows: the state after the last one, and their outputs."""


def select(condition: Bool[Array, "*rows"], this: PyTree, other: PyTree) -> PyTree:
    """Leaf by leaf, rows of ``this`` where ``condition`` holds, else of ``other``."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - condition.ndim)), a, b)

    return jax.tree.map(pick, this, other)


class NoMemory(MemoryCell):
    """The empty memory: features pass unchanged."""

    def init(self, batch: int) -> PyTree:
        return ()

    def step(self, state: PyTree, x: Array, first: Array, valid: Array) -> tuple[PyTree, Array]:
        return state, x

    def unroll(self, state: PyTree, x: Array, first: Array, valid: Array) -> tuple[PyTree, Array]:
        return state, x


class Stack(MemoryCell):
    """Memories upon each other, each reading the outputs of the one below."""

    cells: tuple[MemoryCell, ...]

    @property
    def full_precision(self) -> bool:
        """As its layers, which are all of one kind."""
        return self.cells[0].full_precision

    def init(self, batch: int) -> PyTree:
        return tuple(cell.init(batch) for cell in self.cells)

    def step(self, state: PyTree, x: Array, first: Array, valid: Array) -> tuple[PyTree, Array]:
        after = []
        for cell, below in zip(self.cells, state, strict=True):
            new, x = cell.step(below, x, first, valid)
            after.append(new)
        return tuple(after), x

    def unroll(self, state: PyTree, x: Array, first: Array, valid: Array) -> tuple[PyTree, Array]:
        after = []
        for cell, below in zip(self.cells, state, strict=True):
            new, x = cell.unroll(below, x, first, valid)
            after.append(new)
        return tuple(after), x
