"""The rows of one rollout on the host, written by environments wherever they run and read by the learner as they lie."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from proximo.envs.host.observations import action_storage, leaves
from proximo.spaces import Space

ALIGNMENT = 64  # JAX reads arrays on such borders without copying them
UNTOLD, FAILURE, SUCCESS = -1, 0, 1


@dataclass(frozen=True, eq=False)
class Slab:
    """``T`` steps of ``N`` environments. Rows of ``T+1`` are known before the
    step from them, those of ``T`` come of it."""

    observation: tuple[np.ndarray, ...]
    """T+1 N ..., a leaf each: row ``t`` is what is acted upon in step ``t``."""
    first: np.ndarray
    """T+1 N bool: the observation of this row opens an episode."""
    action: np.ndarray
    """T N ...: what the environment is given."""
    reward: np.ndarray
    """T N float32, raw."""
    terminated: np.ndarray
    """T N bool: the episode has ended in this step."""
    truncated: np.ndarray
    """T N bool: the episode was cut in this step, and has not terminated."""
    life_lost: np.ndarray
    """T N bool: to the learner a termination; the episode goes on."""
    filler: np.ndarray
    """T+1 N bool: the step from this row ignores its action."""
    cut: np.ndarray
    """T N bool: the environment was lost in this step and is another one since; beside ``filler``."""
    success: np.ndarray
    """T N int8: where an episode ended, whether it was a success, or UNTOLD."""
    final: tuple[np.ndarray, ...]
    """N ..., a leaf each: the true final observation, where the last step truncated an episode."""

    def clear(self) -> None:
        """Before a rollout: whatever is not written in every step."""
        for flags in (self.terminated, self.truncated, self.life_lost, self.cut, self.first[1:], self.filler[1:]):
            flags[:] = False
        self.success[:] = UNTOLD

    def begin_after(self, other: Slab) -> None:
        """Go on where ``other`` ends: its last row is this one's first."""
        for mine, its in zip(self.observation, other.observation, strict=True):
            mine[0] = its[-1]
        self.first[0], self.filler[0] = other.first[-1], other.filler[-1]


@dataclass(frozen=True)
class Layout:
    """Where the arrays of ``count`` slabs lie in one block of bytes."""

    num_steps: int
    num_envs: int
    observation_space: Space
    action_space: Space
    count: int = 2

    def _fields(self) -> Iterator[tuple[str, tuple[int, ...], np.dtype]]:
        rows, envs = self.num_steps, self.num_envs
        shape, dtype = action_storage(self.action_space)
        for leaf in leaves(self.observation_space):
            yield "observation", (rows + 1, envs, *leaf.shape), leaf.dtype
        for leaf in leaves(self.observation_space):
            yield "final", (envs, *leaf.shape), leaf.dtype
        for name in ("first", "filler"):
            yield name, (rows + 1, envs), np.dtype(bool)
        yield "action", (rows, envs, *shape), dtype
        yield "reward", (rows, envs), np.dtype(np.float32)
        for name in ("terminated", "truncated", "life_lost", "cut"):
            yield name, (rows, envs), np.dtype(bool)
        yield "success", (rows, envs), np.dtype(np.int8)

    @property
    def size(self) -> int:
        """Bytes of all slabs."""
        return self.count * sum(_aligned(math.prod(shape) * dtype.itemsize) for _, shape, dtype in self._fields())

    def slabs(self, memory: mmap.mmap) -> tuple[Slab, ...]:
        """The slabs in ``memory`` of ``size`` bytes."""
        made, offset = [], 0
        for _ in range(self.count):
            arrays: dict[str, list[np.ndarray]] = {}
            for name, shape, dtype in self._fields():
                count = math.prod(shape)
                array = np.frombuffer(memory, dtype, count, offset).reshape(shape)
                arrays.setdefault(name, []).append(array)
                offset += _aligned(count * dtype.itemsize)
            observation, final = tuple(arrays.pop("observation")), tuple(arrays.pop("final"))
            made.append(Slab(observation=observation, final=final, **{name: only for name, [only] in arrays.items()}))
        return tuple(made)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
