"""Schedules as text in settings: ``3e-4``, ``linear(1e-3, 0)``, ``polynomial(1e-3, 1e-5, 2)``, ``exponential(1e-5, 1e-1)``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

EXPECTED = "a number, linear(from, to), polynomial(from, to, power) or exponential(from, to) between numbers above 0"
EXPONENTIAL = 0.0
"""The power that marks an exponential schedule; a polynomial has a power above 0."""
_CALL = re.compile(r"^(linear|polynomial|exponential)\((.*)\)$")


@dataclass(frozen=True)
class ScheduleText:
    """A constant, or a schedule from ``initial`` to ``final`` over the first ``fraction`` (0 … 1] of the training.

    The text is a number, ``linear(from, to[, fraction])``, ``polynomial(from, to, power[, fraction])``, or
    ``exponential(from, to[, fraction])``, which changes by the same factor in equal times. Other text raises ``ValueError``.
    """

    text: str = field(compare=False)
    initial: float = field(init=False)
    final: float = field(init=False)
    power: float = field(init=False, default=1.0)
    fraction: float = field(init=False, default=1.0)

    def __post_init__(self) -> None:
        call = _CALL.match(self.text.replace(" ", ""))
        numbers = [float(part) for part in (call[2].split(",") if call else [self.text])]
        kind = call[1] if call else "constant"
        fewest, most = {"constant": (1, 1), "linear": (2, 3), "polynomial": (3, 4), "exponential": (2, 3)}[kind]
        if not fewest <= len(numbers) <= most:
            raise ValueError(self.text)
        optional = {"linear": ["fraction"], "exponential": ["fraction"], "polynomial": ["power", "fraction"]}.get(kind, [])
        values = {
            "initial": numbers[0],
            "final": numbers[min(1, len(numbers) - 1)],
            **dict(zip(optional, numbers[2:], strict=False)),
        }
        if not (0 < values.get("fraction", 1.0) <= 1 and values.get("power", 1.0) > 0):
            raise ValueError(self.text)
        if kind == "exponential":
            if not all(0 < end < math.inf for end in (values["initial"], values["final"])):
                raise ValueError(self.text)
            values["power"] = EXPONENTIAL
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def plain(self) -> float | str:
        """The value for a settings file: a number if it is constant, else the text."""
        return self.initial if _CALL.match(self.text.replace(" ", "")) is None else self.text

    def __str__(self) -> str:
        return self.text
