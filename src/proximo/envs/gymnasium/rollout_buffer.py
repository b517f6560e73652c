"""NumPy arrays of one rollout. Environments write into them, also from worker processes; the learner copies nothing."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from proximo.spaces import ActionSpace, Space, action_dtype, leaves

ALIGNMENT = 64  # bytes; JAX does not copy arrays that are aligned like this
UNREPORTED, FAILURE, SUCCESS = -1, 0, 1


@dataclass(frozen=True, eq=False)
class RolloutBuffer:
    """``T`` steps of ``N`` columns. A column is one agent of one environment. Arrays of T+1 rows are known before a step, arrays of T rows are its results."""

    observation: tuple[np.ndarray, ...]
    """T+1 N ..., one array for each leaf: the observation before step ``t``."""
    episode_start: np.ndarray
    """T+1 N bool: the observation is the first one of an episode."""
    action: np.ndarray
    """T N ...: the action that the environment receives."""
    reward: np.ndarray
    """T N float32: the reward of the environment, unscaled."""
    terminated: np.ndarray
    """T N bool: the episode ended in this step."""
    truncated: np.ndarray
    """T N bool: the episode was truncated in this step, and did not terminate."""
    life_lost: np.ndarray
    """T N bool: a life was lost. The learner treats this as a termination; the episode continues."""
    valid: np.ndarray
    """T+1 N bool: False on padding: autoreset steps, steps lost with a worker and absent agents, which ignore their action."""
    lost: np.ndarray
    """T N bool: the environment was lost in this step, and a new one follows. ``valid`` is False too."""
    success: np.ndarray
    """T N int8: SUCCESS, FAILURE or UNREPORTED, in the last step of an episode."""
    final_observation: tuple[np.ndarray, ...]
    """N ..., one array for each leaf: the true final observation of each episode that the latest step truncated."""

    def columns(self, columns: range) -> RolloutBuffer:
        """A view of these columns."""
        part = slice(columns.start, columns.stop)
        return self._view((slice(None), part), part)

    def since(self, row: int) -> RolloutBuffer:
        """A view without the first rows."""
        return self._view(slice(row, None), slice(None))

    def _view(self, part: slice | tuple[slice, slice], columns: slice) -> RolloutBuffer:
        arrays = {name: array[part] for name, array in vars(self).items() if isinstance(array, np.ndarray)}
        observation = tuple(leaf[part] for leaf in self.observation)
        final = tuple(leaf[columns] for leaf in self.final_observation)
        return RolloutBuffer(observation, final_observation=final, **arrays)

    def clear(self) -> None:
        """Reset all flags that are not written in every step. Call this before a rollout."""
        for flags in (self.terminated, self.truncated, self.life_lost, self.lost, self.episode_start[1:]):
            flags[:] = False
        self.valid[1:] = True
        self.success[:] = UNREPORTED

    def begin_again(self) -> None:
        """Copy the last row to the first one."""
        for array in (*self.observation, self.episode_start, self.valid):
            array[0] = array[-1]


@dataclass(frozen=True)
class BufferLayout:
    """Positions of the arrays of a rollout buffer in one piece of memory."""

    num_steps: int
    num_columns: int
    observation_space: Space
    action_space: ActionSpace

    def _fields(self) -> Iterator[tuple[str, tuple[int, ...], np.dtype]]:
        rows, columns = self.num_steps, self.num_columns
        for leaf in leaves(self.observation_space):
            yield "observation", (rows + 1, columns, *leaf.shape), leaf.dtype
            yield "final_observation", (columns, *leaf.shape), leaf.dtype
        yield "action", (rows, columns, *self.action_space.shape), action_dtype(self.action_space)
        yield "reward", (rows, columns), np.dtype(np.float32)
        yield "success", (rows, columns), np.dtype(np.int8)
        for name in ("episode_start", "valid", "terminated", "truncated", "life_lost", "lost"):
            yield name, (rows + (name in ("episode_start", "valid")), columns), np.dtype(bool)

    @property
    def size(self) -> int:
        """Bytes of the buffer."""
        return sum(_aligned(math.prod(shape) * dtype.itemsize) for _, shape, dtype in self._fields())

    def buffer(self, memory: mmap.mmap) -> RolloutBuffer:
        """Make the buffer in ``memory``, which has ``size`` bytes."""
        arrays, offset = dict[str, list[np.ndarray]](), 0
        for name, shape, dtype in self._fields():
            arrays.setdefault(name, []).append(array := np.ndarray(shape, dtype, memory, offset))
            offset += _aligned(array.nbytes)
        observation, final = tuple(arrays.pop("observation")), tuple(arrays.pop("final_observation"))
        return RolloutBuffer(observation, final_observation=final, **{name: only for name, [only] in arrays.items()})


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def shared_memory(size: int) -> int:
    """Return the file descriptor of ``size`` zeroed bytes. They have no name, so nothing remains if a process is
    killed."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("proximo")
    else:  # macOS
        descriptor, name = tempfile.mkstemp()
        os.unlink(name)
    os.ftruncate(descriptor, size)
    return descriptor
