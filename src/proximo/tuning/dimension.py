"""One searched setting: a list of values or a range. It converts between values of the setting and parameters of Optuna."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proximo.config import LEAVES
from proximo.config.coercion import SCHEDULE, coerce
from proximo.config.schedule_text import ScheduleText

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Parameters = dict[str, Any]
"""What Optuna draws, by its names for it: a range on 1 - γ has the name ``1-gamma``."""
ZERO_SHARE = 0.25
"""With ``zero``, the range is extended downwards by this share of its length on the logarithmic scale, and numbers drawn there
are 0."""
SHAPES = ("constant", "linear", "base")
DIGITS = 4


@dataclass(frozen=True)
class Choices:
    """A list of values. Three numbers or more are drawn by their rank, so that the sampler knows which are near each other."""

    name: str
    values: tuple[Any, ...]
    """In types that Optuna stores: sorted numbers, booleans and text (``hidden_sizes`` as the text ``64,64``)."""

    @property
    def _ranked(self) -> bool:
        return len(self.values) > 2 and are_numbers(self.values)

    @property
    def _key(self) -> str:
        return f"{self.name}.rank" if self._ranked else self.name

    def distributions(self) -> Mapping[str, BaseDistribution]:
        """The one distribution, by its name."""
        from optuna.distributions import CategoricalDistribution, IntDistribution

        if self._ranked:
            return {self._key: IntDistribution(0, len(self.values) - 1)}
        return {self._key: CategoricalDistribution(self.values)}

    def value(self, parameters: Parameters) -> Any:
        """The value of the setting for drawn parameters."""
        drawn = parameters[self._key]
        return self.values[drawn] if self._ranked else drawn

    def parameters(self, value: Any) -> Parameters | None:
        """The parameters that give ``value`` of the setting; None if it is not in the list."""
        found = [i for i, v in enumerate(self.values) if coerce(LEAVES[self.name], v) == value]
        return {self._key: found[0] if self._ranked else self.values[found[0]]} if found else None

    def examples(self) -> list[Any]:
        """Values that include every one that changes the compiled program."""
        return list(self.values)

    def widened(self, value: Any) -> Choices:
        """A list that contains ``value`` of the setting."""
        if self.parameters(value) is not None:
            return self
        values = [*self.values, plain(value)]
        return dataclasses.replace(self, values=tuple(sorted(values) if are_numbers(values) else values))

    as_yaml = examples


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included.

    ``log``: on a logarithmic scale. ``one_minus``: 1 - value is on a logarithmic scale. ``zero``: 0 is included. ``shapes`` are for
    settings that may be schedules: ``constant``, ``linear`` to 0, or the schedule of the ``base`` with scaled numbers.
    """

    name: str
    low: float
    high: float
    log: bool = False
    one_minus: bool = False
    zero: bool = False
    step: float | None = None
    shapes: tuple[str, ...] = ()
    base: ScheduleText | None = None
    """The setting's schedule in the base."""

    @property
    def _key(self) -> str:
        return f"1-{self.name}" if self.one_minus else self.name

    @property
    def _shape_key(self) -> str:
        return f"{self.name}.schedule"

    @property
    def _ends(self) -> tuple[Any, Any]:
        """The lowest and highest number that is drawn."""
        if self.one_minus:
            return _rounded(1 - self.high), _rounded(1 - self.low)
        if self.zero:
            return _rounded(self.low * (self.low / self.high) ** ZERO_SHARE), self.high
        return self.low, self.high

    def distributions(self) -> Mapping[str, BaseDistribution]:
        """One distribution for the number, and one for the shape if there are several."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        low, high = self._ends
        log = self.log or self.one_minus
        number: BaseDistribution = FloatDistribution(low, high, log=log, step=self.step)
        if LEAVES[self.name].type is int:
            number = IntDistribution(int(low), int(high), log=log, step=int(self.step or 1))
        found: dict[str, BaseDistribution] = {self._key: number}
        return found | ({self._shape_key: CategoricalDistribution(self.shapes)} if len(self.shapes) > 1 else {})

    def value(self, parameters: Parameters) -> Any:
        """The value of the setting for drawn parameters: a number, or the text of a schedule. Without ``step`` it has four digits, or more
        if the range is narrow."""
        drawn = parameters[self._key]
        if LEAVES[self.name].type is int:
            return int(drawn)
        if self.step:
            number = round(drawn, 12)
        elif self.one_minus:
            number = round(1 - _rounded(drawn), 12)
        else:
            number = _rounded(drawn, math.inf if self.log else self.high - self.low)
        number = 0.0 if self.zero and drawn < self.low else min(max(number, self.low), self.high)
        if LEAVES[self.name].type != SCHEDULE:
            return number
        shape = parameters.get(self._shape_key, self.shapes[0])
        if shape == "base" and self.base is not None:
            return _scaled(self.base, number)
        return f"linear({number:g}, 0)" if shape == "linear" else number

    def parameters(self, value: Any) -> Parameters | None:
        """The parameters that give ``value`` of the setting; None if it cannot be drawn."""
        found: Parameters = {}
        if isinstance(value, ScheduleText):
            shape = self._shape_of(value)
            if shape is None:
                return None
            found, value = ({self._shape_key: shape} if len(self.shapes) > 1 else {}), value.initial
        low, high = self._ends
        if self.zero and value == 0:
            return {self._key: math.sqrt(low * self.low), **found}
        drawn = 1 - value if self.one_minus else value
        steps = (value - self.low) / self.step if self.step else 0.0
        if (
            not self.low <= value <= self.high or abs(steps - round(steps)) > 1e-6
        ):  # 0.3 is 2.0000000000000004 steps of 0.1 above 0.1
            return None
        return {self._key: min(max(drawn, low), high), **found}

    def _shape_of(self, value: ScheduleText) -> str | None:
        kinds = {"constant": isinstance(value.plain(), float), "linear": (value.final, value.power, value.fraction) == (0, 1, 1)}
        kinds["linear"] &= not kinds["constant"]
        return next((shape for shape in self.shapes if kinds.get(shape, value == self.base)), None)

    def examples(self) -> list[Any]:
        """Values that include every one that changes the compiled program."""
        numbers = [self.low, self.high, *([0.0] if self.zero else [])]
        return [int(n) for n in numbers] if LEAVES[self.name].type is int else numbers

    def widened(self, value: Any) -> Range:
        """A range that contains ``value`` of the setting, as far as the scale allows."""
        new = self
        if isinstance(value, ScheduleText):
            if self._shape_of(value) is None:
                new = dataclasses.replace(new, shapes=("base", *self.shapes), base=value)
            value = value.initial
        if (new.log and value <= 0) or (new.one_minus and value >= 1):
            return new
        return dataclasses.replace(new, low=min(new.low, value), high=max(new.high, value))

    def as_yaml(self) -> Any:
        """The form in a YAML file."""
        flags = {name: True for name in ("log", "one_minus", "zero") if getattr(self, name)}
        step = {} if self.step is None else {"step": self.step}
        shapes = {"schedule": list(self.shapes)} if self.shapes not in ((), ("base",)) else {}
        return {"low": self.low, "high": self.high, **flags, **step, **shapes}


Dimension = Choices | Range


def are_numbers(values: Any) -> bool:
    """Whether all are numbers, and none is a boolean."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def plain(value: Any) -> Any:
    """The value of a setting in types that Optuna, CSV and YAML store: a number, a boolean or text."""
    if isinstance(value, ScheduleText):
        return value.plain()
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else value


def _rounded(x: float, span: float = math.inf) -> float:
    """``x`` with four digits; with more if it varies by ``span`` only, which then has four."""
    more = max(0, math.floor(math.log10(abs(x) / span))) if x and 0 < span < math.inf else 0
    return float(f"{x:.{DIGITS + more}g}")


def _scaled(schedule: ScheduleText, initial: float) -> Any:
    """``schedule`` with another ``initial`` value, and its final value scaled by the same factor."""
    if isinstance(schedule.plain(), float):
        return initial
    final = _rounded(schedule.final * initial / schedule.initial)
    kind = schedule.text.replace(" ", "").partition("(")[0]
    power = f", {schedule.power:g}" if kind == "polynomial" else ""
    fraction = f", {schedule.fraction:g}" if schedule.fraction != 1 else ""
    return f"{kind}({initial:g}, {final:g}{power}{fraction})"
