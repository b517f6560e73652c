"""The spaces that observations and actions live in: plain, hashable descriptions that need no environment library."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from proximo.errors import EnvError

Bound = float | tuple[float, ...]


@dataclass(frozen=True)
class Box:
    """Arrays of one shape. ``low`` and ``high`` are one number for all entries, or one for each (row-major)."""

    shape: tuple[int, ...]
    low: Bound = -math.inf
    high: Bound = math.inf
    dtype: str = "float32"

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        """Bytes with three axes: (height, width, channels)."""
        return self.dtype == "uint8" and len(self.shape) == 3

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds, each of shape ``shape``."""
        low, high = (np.broadcast_to(np.asarray(b, np.float64), (self.size,)) for b in (self.low, self.high))
        return low.reshape(self.shape), high.reshape(self.shape)

    def __str__(self) -> str:
        return f"Box{self.shape} {self.dtype}"


@dataclass(frozen=True)
class Discrete:
    """The integers ``0 … n - 1``."""

    n: int

    def __str__(self) -> str:
        return f"Discrete({self.n})"


Space = Box | Discrete


def _bound(values: Any, shape: tuple[int, ...]) -> Bound:
    flat = np.broadcast_to(np.asarray(values, np.float64), shape).reshape(-1)
    return float(flat[0]) if flat.size == 0 or (flat == flat[0]).all() else tuple(map(float, flat))


def from_any(space: Any, role: str) -> Space:
    """Translate a space of Gymnasium or gymnax (known by class name, so that neither is imported), or return ours.

    Raises ``EnvError`` naming the space when it is of another kind.
    """
    if isinstance(space, Box | Discrete):
        return space
    kind = type(space).__name__
    if kind == "Discrete" and int(getattr(space, "start", 0)) == 0:
        return Discrete(int(space.n))
    if kind == "Box":
        shape = tuple(int(n) for n in space.shape)
        return Box(shape, _bound(space.low, shape), _bound(space.high, shape), str(np.dtype(space.dtype)))
    raise EnvError(
        f"The {role} space {space!r} is not supported: expected Box, or Discrete starting at 0. "
        "Change the environment, or wrap it so that it offers one of these."
    )
