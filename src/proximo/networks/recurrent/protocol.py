"""The protocol of memories, ``MemoryCell``, and how to add one."""

from __future__ import annotations

import abc

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, PyTree

from proximo.math.selection import select as select


class MemoryCell(eqx.Module):
    """Maps features to features and carries a state: a pytree of arrays ``[N, ...]`` for ``N`` environments.

    Each cell guarantees two things, in ``step`` and in ``unroll``: where ``episode_start`` is true the state
    is reset before the input is read, and where ``valid`` is false (padding) the state stays unchanged. So
    ``scan(step) == unroll``. The tests check this for all of ``CELLS``.

    To add a cell ``mycell``:

    1. Write ``recurrent/mycell.py`` with a subclass that has a classmethod ``create(key, in_size, config)``, ``init`` and ``step``
       (with ``select``). Two base classes have ``step`` and a fast ``unroll``: ``GatedCell`` (see ``gru.py``) for gates that depend
       on the state, and ``LinearRecurrence`` (see ``mingru.py``) for a state that is linear in the one before. Test one step against
       the formulas of the paper.
    2. Import it in ``recurrent/__init__.py``, and add ``"mycell": MyCell`` to ``CELLS``.
    3. Add the word to the ``memory`` setting in ``config/schema.py``. A setting that only this cell has is an
       entry of ``MemorySettings``, with its condition in ``config/validation.py``.
    4. Describe it in ``docs/memory.md`` ("Choose a cell") and ``README.md``.

    A memory outside of proximo needs none of this: pass its class as the ``memory`` setting
    (docs/custom-networks.md).
    """

    @property
    def full_precision(self) -> bool:
        """Whether the cell is computed in the parameters' own type, whatever ``compute_dtype`` is."""
        return False

    @abc.abstractmethod
    def init(self, batch: int) -> PyTree[Float[Array, "N ..."]]:
        """The empty state of ``batch`` environments."""

    @abc.abstractmethod
    def step(
        self, state: PyTree, x: Float[Array, "N features"], episode_start: Bool[Array, " N"], valid: Bool[Array, " N"]
    ) -> tuple[PyTree, Float[Array, "N out"]]:
        """One step of each environment.

        Args:
            state: The state before the step.
            x: Features.
            episode_start: Whether to reset the state before ``x`` is read.
            valid: False on padding steps, which leave the state unchanged; their outputs are ignored.

        Returns:
            The state after the step, and the outputs.
        """

    def unroll(
        self, state: PyTree, x: Float[Array, "T N features"], episode_start: Bool[Array, "T N"], valid: Bool[Array, "T N"]
    ) -> tuple[PyTree, Float[Array, "T N out"]]:
        """``step`` for ``T`` steps: the state after the last one, and the outputs of all. A subclass may compute it faster."""
        return jax.lax.scan(lambda state, inputs: self.step(state, *inputs), state, (x, episode_start, valid))


class NoMemory(MemoryCell):
    """The memory of a feed-forward policy: an empty state; features pass unchanged."""

    def init(self, batch: int) -> PyTree:
        return ()

    def step(self, state: PyTree, x: Array, episode_start: Array, valid: Array) -> tuple[PyTree, Array]:
        return state, x

    unroll = step


class Stack(MemoryCell):
    """Layers of cells of one kind: each reads the outputs of the previous one. The state is a tuple of their states."""

    cells: tuple[MemoryCell, ...]

    @property
    def full_precision(self) -> bool:
        return self.cells[0].full_precision

    def init(self, batch: int) -> PyTree:
        return tuple(cell.init(batch) for cell in self.cells)

    def step(self, state: PyTree, x: Array, episode_start: Array, valid: Array) -> tuple[PyTree, Array]:
        return self._through("step", state, x, episode_start, valid)

    def unroll(self, state: PyTree, x: Array, episode_start: Array, valid: Array) -> tuple[PyTree, Array]:
        return self._through("unroll", state, x, episode_start, valid)

    def _through(self, method: str, state: PyTree, x: Array, *flags: Array) -> tuple[PyTree, Array]:
        states = []
        for cell, before in zip(self.cells, state, strict=True):
            after, x = getattr(cell, method)(before, x, *flags)
            states.append(after)
        return tuple(states), x
