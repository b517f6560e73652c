"""The protocol of memories, ``MemoryCell``, and how to add one."""

import abc

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, PyTree, Shaped

Steps = PyTree[Shaped[Array, "T N ..."]]
"""Features of ``T`` steps. A custom memory may read observations, and give parameters and values."""


class MemoryCell(eqx.Module):
    """Maps features ``x`` to features and carries a state: a pytree of arrays ``[N, ...]`` for ``N`` environments.

    Each cell guarantees two things, in ``step`` and in ``unroll``: where ``episode_start`` is true the state
    is reset before ``x`` is read, and where ``valid`` is false (padding) the state stays unchanged. So
    ``scan(step) == unroll``. The tests check this for all of ``CELLS``.

    To add a cell ``mycell``:

    1. Write ``recurrent/mycell.py`` with a subclass that has a classmethod ``create(key, in_size, config)``,
       ``init`` and ``step`` (with ``types.select``). Two base classes have ``step`` and a fast ``unroll``:
       ``GatedCell`` (see ``gru.py``), and ``LinearRecurrence`` (see ``mingru.py``) for a state that is linear in the
       one before. Test one step against the formulas of the paper (``tests/networks/test_cells.py``).
    2. Add its word to ``MEMORIES`` in ``config/schema.py``, from which ``typed_settings.py`` and ``docs/settings.md``
       are generated (see there). A setting of its own is an entry of ``MemorySettings`` with ``of=("mycell",)``. A
       ``GatedCell`` has the setting ``horizon``: add its word there.
       Describe it in ``docs/memory.md`` ("Choose a cell") and ``README.md``, twice. If jax2onnx cannot translate its
       ``step``, ``MENDED`` in ``export/onnx_model.py`` has another one.

    A memory outside of proximo needs none of this: pass its class as the setting (docs/custom-networks.md).
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
        """One step: the state after it, and the outputs, which are ignored on padding steps."""

    def unroll(
        self, state: PyTree, x: Steps, episode_start: Bool[Array, "T N"], valid: Bool[Array, "T N"]
    ) -> tuple[PyTree, Steps]:
        """``T`` steps: the state after the last one, and all outputs. A subclass may compute it faster."""
        return jax.lax.scan(lambda state, inputs: self.step(state, *inputs), state, (x, episode_start, valid))


class NoMemory(MemoryCell):
    """The memory of a feed-forward policy: an empty state; features pass unchanged."""

    def init(self, batch: int) -> PyTree:
        return ()

    def step(self, state: PyTree, x: PyTree, episode_start: Array, valid: Array) -> tuple[PyTree, PyTree]:
        return state, x

    unroll = step


class Stack(MemoryCell):
    """Layers of cells: each reads the outputs of the previous one. The state is a tuple of their states."""

    cells: tuple[MemoryCell, ...]

    @property
    def full_precision(self) -> bool:
        return self.cells[0].full_precision

    def init(self, batch: int) -> PyTree:
        return tuple(cell.init(batch) for cell in self.cells)

    def step(self, state: PyTree, x: Array, *flags: Array, method: str = "step") -> tuple[PyTree, Array]:
        states = []
        for cell, before in zip(self.cells, state, strict=True):
            after, x = getattr(cell, method)(before, x, *flags)
            states.append(after)
        return tuple(states), x

    def unroll(self, state: PyTree, x: Array, *flags: Array) -> tuple[PyTree, Array]:
        return self.step(state, x, *flags, method="unroll")
