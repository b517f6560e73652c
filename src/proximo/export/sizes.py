"""Sizes that depend on the number of environments N, found by comparing traces for two values of N."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from proximo.errors import ConfigError

TRACED = (5, 7)
"""The two values of N. From 8 on, convolutions are computed in another way on the CPU."""


class NotExportedError(ConfigError):
    """The policy uses a computation that has no translation."""


class BatchDependentError(NotExportedError):
    """The computation depends on N other than by sizes ``a · N + b``."""


@dataclass(frozen=True)
class Affine:
    """``times · N + plus``."""

    times: int
    plus: int

    def __add__(self, other: Size) -> Size:
        times, plus = (other.times, other.plus) if isinstance(other, Affine) else (0, other)
        return affine(self.times + times, self.plus + plus)

    __radd__ = __add__

    def __sub__(self, other: Size) -> Size:
        return self + -1 * other

    def __rsub__(self, other: int) -> Size:
        return -1 * self + other

    def __mul__(self, other: Size) -> Size:
        if isinstance(other, Affine):
            raise BatchDependentError("a size in it grows with the square of the number of environments")
        return affine(self.times * other, self.plus * other)

    __rmul__ = __mul__

    def __str__(self) -> str:
        factor = "N" if self.times == 1 else f"{self.times}N"
        return factor + (f"{self.plus:+d}" if self.plus else "")


Size = int | Affine
Shape = tuple[Size, ...]


def affine(times: int, plus: int) -> Size:
    """``times · N + plus``, as an integer if it does not depend on N."""
    return Affine(times, plus) if times else plus


def product(shape: Shape) -> Size:
    """The number of entries."""
    total: Size = 1
    for size in shape:
        total = total * size
    return total


def is_static(value: Any) -> bool:
    """Whether ``value`` contains no size that depends on N."""
    if isinstance(value, tuple | list):
        return all(map(is_static, value))
    return not isinstance(value, Affine)


def as_json(value: Any) -> Any:
    """Sizes as JSON: numbers, or ``[times, plus]``."""
    if isinstance(value, tuple | list):
        return [as_json(part) for part in value]
    if isinstance(value, Affine):
        return [value.times, value.plus]
    return int(value) if isinstance(value, np.integer) else value


def axes(shape: Shape) -> list[int | str]:
    """The sizes for people and ONNX: numbers, or text such as ``2N+1``."""
    return [str(size) if isinstance(size, Affine) else size for size in shape]


def merged(one: Any, other: Any) -> Any:
    """Merge ``one`` and ``other``, of the first and the second trace. Integers that differ become ``Affine``, also in tuples. Arrays and
    other numbers must be equal. Everything else is taken from ``one``."""
    if isinstance(one, tuple | list):
        if not isinstance(other, tuple | list) or len(one) != len(other):
            raise BatchDependentError("the number of its operations depends on the number of environments")
        parts = [merged(a, b) for a, b in zip(one, other, strict=True)]
        return type(one)(*parts) if hasattr(one, "_fields") else tuple(parts)
    if isinstance(one, int) and not isinstance(one, bool) and isinstance(other, int):
        return _merged_size(one, other)
    if isinstance(one, float | np.ndarray | np.generic) and not np.array_equal(one, other, equal_nan=_has_nan(one)):
        raise BatchDependentError("a number in it depends on the number of environments")
    return one


def _merged_size(one: int, other: int) -> Size:
    times, rest = divmod(other - one, TRACED[1] - TRACED[0])
    if rest:
        raise BatchDependentError("a size in it is no multiple of the number of environments plus a constant")
    return affine(times, one - times * TRACED[0])


def _has_nan(x: Any) -> bool:
    return np.asarray(x).dtype.kind in "fc"
