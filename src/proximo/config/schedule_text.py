"""Schedules as text in settings: ``3e-4``, ``linear(1e-3, 0)``, ``polynomial(1e-3, 1e-5, 2)``, ``exponential(1e-5, 1e-1)``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

EXPECTED = (
    "a number, linear(from, to), polynomial(from, to, power), exponential(from, to) with both above 0, or a function of the completed "
    "share of the training, 0 … 1"
)
EXPONENTIAL = 0.0
"""The power that marks an exponential schedule; a polynomial has a power above 0."""
_CALL = re.compile(r"^(linear|polynomial|exponential)\((.*)\)$")
_NUMBERS = {
    "constant": ("initial",),
    "linear": ("initial", "final", "fraction"),
    "polynomial": ("initial", "final", "power", "fraction"),
    "exponential": ("initial", "final", "fraction"),
}
"""What the numbers of each kind of schedule are. ``fraction`` may be missing."""


@dataclass(frozen=True)
class ScheduleText:
    """A setting that is a constant, or a schedule from ``initial`` to ``final`` over the first ``fraction`` of the training.

    With a ``fraction`` above 1, the training ends before the schedule: a schedule of 10,000 updates has the fraction 2 in a training of 5,000.

    The text is a number, ``linear(from, to[, fraction])``, ``polynomial(from, to, power[, fraction])``, or
    ``exponential(from, to[, fraction])``, which changes by the same factor in equal times. Other text raises ``ValueError``. Programs read
    its numbers as a ``math.schedules.NumericSchedule``.
    """

    text: str = field(compare=False)
    initial: float = field(init=False)
    final: float = field(init=False)
    power: float = field(init=False, default=1.0)
    fraction: float = field(init=False, default=1.0)

    def __post_init__(self) -> None:
        call = _CALL.match(self.text.replace(" ", ""))
        kind, parts = (call[1], call[2].split(",")) if call else ("constant", [self.text])
        names = _NUMBERS[kind]
        values = dict(zip(names, map(float, parts), strict=False))
        values.setdefault("final", values["initial"])
        ends = (values["initial"], values["final"])
        if (
            not len(names) - ("fraction" in names) <= len(parts) <= len(names)
            or not 0 < values.get("fraction", 1.0) < math.inf
            or not values.get("power", 1.0) > 0
            or (kind == "exponential" and not all(0 < end < math.inf for end in ends))
        ):
            raise ValueError(self.text)
        if kind == "exponential":
            values["power"] = EXPONENTIAL
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def plain(self) -> float | str:
        """The value for a settings file: a number if it is constant, else the text."""
        return self.initial if _CALL.match(self.text.replace(" ", "")) is None else self.text

    def __str__(self) -> str:
        return self.text
