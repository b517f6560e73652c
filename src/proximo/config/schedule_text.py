"""Schedules as text in settings, such as ``3e-4`` or ``linear(1e-3, 0)``."""

import math
import re
from dataclasses import dataclass, field

EXPECTED = (
    "a number, linear(from, to), polynomial(from, to, power), exponential(from, to) with both above 0, or a function of the completed "
    "share of the training, 0 … 1"
)
EXPONENTIAL = 0.0
"""The power that marks an exponential schedule; a polynomial has a power above 0."""


@dataclass(frozen=True)
class ScheduleText:
    """A constant, or a schedule from ``initial`` to ``final`` over the first ``fraction`` of the training.

    The text is a number, ``linear(from, to[, fraction])``, ``polynomial(from, to, power[, fraction])``, or
    ``exponential(from, to[, fraction])``, which changes by the same factor in equal times. Other text raises
    ``ValueError``. With a ``fraction`` above 1, the training ends before the schedule. Programs read its numbers as a
    ``math.schedules.NumericSchedule``.
    """

    text: str = field(compare=False)
    initial: float = field(init=False)
    final: float = field(init=False)
    power: float = field(init=False)
    fraction: float = field(init=False)

    def __post_init__(self) -> None:
        call = re.fullmatch(r"(linear|polynomial|exponential)\((.*)\)", self.text.replace(" ", ""))
        kind, numbers = (call[1], [*map(float, call[2].split(","))]) if call else ("linear", 2 * [float(self.text)])
        initial, final, *others = numbers
        if kind != "polynomial":
            others = [EXPONENTIAL if kind == "exponential" else 1.0, *others]
        power, fraction = others if len(others) == 2 else (*others, 1.0)
        is_valid = min(initial, final) > 0 and max(initial, final) < math.inf if kind == "exponential" else power > 0
        if not (is_valid and 0 < fraction < math.inf):
            raise ValueError(self.text)
        vars(self).update(initial=initial, final=final, power=power, fraction=fraction)

    def plain(self) -> float | str:
        """The value for a settings file: a number if it is constant, else the text."""
        return self.text if "(" in self.text else self.initial

    def __str__(self) -> str:
        return self.text
