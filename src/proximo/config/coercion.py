"""The value of one setting: reading it from YAML, the text of a flag, or Python; and writing it as text."""

import contextlib
import functools
import math
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
from pathlib import PurePath
from typing import Any, Literal

from proximo.config.custom import OPTIMIZERS, Custom, is_custom
from proximo.errors import ConfigError, is_plain, nearest, shown
from proximo.serialization import is_storable, read_yaml

UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError, SyntaxError)
"""What functions raise that read a value of the wrong kind."""
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


@dataclass(frozen=True)
class Leaf:
    """One setting, or one entry of a setting. Numbers are finite, ``low <= x <= high`` and ``x > above``."""

    group: str
    name: str
    type: Any
    default: Any
    help: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    traced: bool = False
    """Whether it is a number, or a schedule, that may change without a new compilation."""
    zero_is_off: bool = False
    """Whether the code of a traced setting is not compiled if its value is 0."""
    entries: tuple["Leaf", ...] = ()
    """The entries of a setting, named ``SETTING.ENTRY``."""
    of: tuple[str, ...] = ()
    """The words of the setting that chooses, such as ``memory`` for ``memory_settings``, with which an entry has an effect; empty: all."""

    @property
    def entry(self) -> str:
        """The name of an entry within its setting; the name itself for a setting."""
        return self.name.rpartition(".")[2]

    @functools.cached_property
    def _accepted(self) -> tuple[Any, ...]:
        is_union = typing.get_origin(self.type) in (typing.Union, types.UnionType)
        return typing.get_args(self.type) if is_union else (self.type,)

    @property
    def base(self) -> Any:
        """The type of ``READERS`` that it accepts besides words and custom code, or None."""
        return dict[str, Any] if self.entries else next((part for part in self._accepted if part in READERS), None)

    @property
    def words(self) -> tuple[str, ...]:
        """The words that the setting accepts: the ``Literal`` in its type."""
        return tuple(word for part in self._accepted if typing.get_origin(part) is Literal for word in typing.get_args(part))

    @property
    def takes_custom(self) -> bool:
        """Whether the setting accepts custom code."""
        return Custom in self._accepted

    @property
    def expected(self) -> str:
        """What the setting accepts, for messages."""
        if self.base:
            return ", or ".join((READERS[self.base][1], *self.words))
        named = "my_package.module:Name" + (" or optax:sgd" if self.name in OPTIMIZERS else "")
        code = f", or custom code: an object, or its name as {named}" if self.takes_custom else ""
        return f"one of {', '.join(self.words)}{code}"

    def value_in(self, config: Any) -> Any:
        """The value of the setting in a ``Config``."""
        return operator.attrgetter(f"{self.group}.{self.name}")(config)

    def with_value(self, config: Any, value: Any) -> Any:
        """A ``Config`` with another value of the setting."""

        def changed(node: Any, path: str) -> Any:
            name, _, rest = path.partition(".")
            return replace(node, **{name: changed(getattr(node, name), rest) if rest else value})

        return changed(config, f"{self.group}.{self.name}")

    def is_off(self, value: Any) -> bool:
        """Whether this is a value that switches a traced setting off."""
        return self.zero_is_off and value == self.default


def coerce(leaf: Leaf, value: Any) -> Any:
    """Convert ``value``, from YAML, Python or a flag, to the type of a setting. Raises ``ConfigError``."""
    result: Any = None
    try:
        result = _read(leaf, value)
    except UNREADABLE:
        problem = leaf.expected + nearest(str(getattr(value, "__name__", value))[:80], leaf.words, 0.7)
    else:
        parts = _parts(result)
        problem = "" if all(is_plain(x) for x in parts if isinstance(x, str)) else "text without control characters"
        numbers = [] if isinstance(result, dict) else [x for x in parts if type(x) in (int, float)]
        problem = problem or next(filter(None, (expected_range(leaf, number) for number in numbers)), "")
    if problem:
        raise ConfigError(f"{leaf.name} = {shown(value)}: expected {problem}.")
    for key, item in result.items() if isinstance(result, dict) else ():
        if not is_storable(item):
            raise ConfigError(
                f"{leaf.name}: {key} = {shown(item)}: expected a value that config.yaml can store: text, numbers, true or false, lists and "
                "mappings. Other objects are given by a function that makes the environment: my_package.module:make_env or, in "
                f"proximo.PPO, lambda: MyEnv({key}=…)."
            )
    return result


def _read(leaf: Leaf, value: Any) -> Any:
    if isinstance(value, str) and value in leaf.words:
        return value
    if leaf.takes_custom:
        is_data = isinstance(value, bool | int | float | str | list | tuple | dict | set | bytes | date | None)
        # An optax transformation is a named tuple. Only a function is a schedule.
        is_code = callable(value) if leaf.base else not is_data or hasattr(value, "_fields")
        if is_code or is_custom(value):
            return value if isinstance(value, str | Custom) else Custom(value)
    if leaf.base is None:
        raise ValueError
    return READERS[leaf.base][2](value)


def coerce_entries(leaf: Leaf, value: Any) -> dict[str, Any]:
    """Convert the entries that ``value`` gives of a setting with entries, by name. Raises ``ConfigError``."""
    known = {entry.entry: entry for entry in leaf.entries}
    try:
        given = vars(value) if isinstance(value, leaf.type) else _pairs(value)
    except UNREADABLE:
        raise ConfigError(f"{leaf.name} = {shown(value)}: expected key=value pairs with the keys {', '.join(known)}.") from None
    for name in given:
        if name not in known:
            raise ConfigError(f"{leaf.name} has no entry {shown(name)}{nearest(name[:80], known)}; expected {', '.join(known)}.")
    return {known[name].name: coerce(known[name], item) for name, item in given.items()}


def plain(value: Any) -> Any:
    """The value of a setting for YAML and JSON: plain numbers, text, lists and mappings."""
    if isinstance(value, Custom):
        return str(value)
    return value.plain() if hasattr(value, "plain") else list(value) if isinstance(value, tuple) else value


def text_of(value: Any) -> str:
    """The value of a setting as a user writes it."""
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ",".join(f"{name}={item}" for name, item in value.items())
    text = str(value)
    return text.removesuffix(".0") if isinstance(value, float) else text.lower() if isinstance(value, bool) else text


def expected_range(leaf: Leaf, number: float) -> str:
    """The limit that ``number`` exceeds, in words; empty if it is in the range of the setting."""
    if not abs(number) <= sys.float_info.max:  # NaN, infinity, or an integer that is too large for a float
        return "a finite number"
    if leaf.low is not None and number < leaf.low:
        zero = re.search(r"\b0: ([^;]+)", leaf.help) if leaf.low == 0 else None
        return f"at least {leaf.low:,g}" + (f" (0: {zero[1]})" if zero else "")
    if leaf.high is not None and number > leaf.high:
        return f"at most {leaf.high:{',' if isinstance(leaf.high, int) else 'g'}}"
    return f"more than {leaf.above:g}" if leaf.above is not None and number <= leaf.above else ""


def _parts(value: Any) -> list[Any]:
    """All texts and numbers in ``value``, including the keys of mappings."""
    if isinstance(value, ScheduleText):
        return [value.text, value.initial, value.final]
    items = [*value, *value.values()] if isinstance(value, dict) else value
    return [part for item in items for part in _parts(item)] if isinstance(items, tuple | list) else [items]


def _integer(value: Any) -> int:
    if isinstance(value, str):
        value = int(value) if value.replace("_", "").isdigit() else float(value)
    if isinstance(value, bool) or value != int(value):
        raise ValueError
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError
    return float(value)


def _boolean(value: Any) -> bool:
    words = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False, "1": True, "0": False}
    return value if isinstance(value, bool) else words[str(value).lower()]


def _integers(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        value = [] if value.strip() == "none" else [part for part in value.strip("()[] ").split(",") if part.strip()]
    return tuple(map(_integer, value if isinstance(value, list | tuple) else [value]))


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [] if value == "none" else _split(value)
    parts = [str(Custom(part)) if isinstance(part, type) else part.strip() for part in value]
    return tuple(filter(None, parts))


def _text(value: Any) -> str:
    if not isinstance(value, str | PurePath):
        raise ValueError
    return str(value)


def _pairs(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(key): _stored(item) for key, item in value.items()}
    pairs = [part.split("=", 1) for part in _split(value) if part.strip()]
    return {key.strip(): _nested(text.strip()) for key, text in pairs}


def _stored(value: Any) -> Any:
    """``value`` as config.yaml stores it, so that a resumed run gives its environment the same: NumPy values and
    tuples as numbers and lists, members of enumerations as their value, paths as text."""
    if hasattr(value, "tolist") and not isinstance(value, type):
        value = value.tolist()
    value = value.value if isinstance(value, Enum) else str(value) if isinstance(value, PurePath) else value
    if isinstance(value, Mapping):
        return {_stored(key): _stored(item) for key, item in value.items()}
    return [_stored(item) for item in value] if isinstance(value, list | tuple) else value


def _split(text: str) -> list[str]:
    """The parts of ``text`` between the commas that are not in brackets."""
    parts, depth = [""], 0
    for character in text:
        depth = max(0, depth + (character in "[{(") - (character in "]})"))
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _nested(text: str) -> Any:
    """The value of one parameter: a list or a mapping in YAML's brackets, a tuple of Python, or a scalar."""
    text = re.sub(r"^\(([^()]*,[^()]*)\)$", r"[\1]", text)
    return _scalars(read_yaml(text.encode()) if text.startswith(("[", "{")) else text)


def _scalars(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _scalars(item) for key, item in value.items()}
    return [_scalars(item) for item in value] if isinstance(value, list) else scalar(value) if isinstance(value, str) else value


def scalar(text: str) -> Any:
    """The number or truth value that ``text`` writes, or ``text``."""
    for read in (int, float, lambda t: {"true": True, "false": False}[t.lower()]):
        with contextlib.suppress(ValueError, KeyError):
            return read(text)
    return text


def wrapper_call(text: str) -> tuple[str, dict[str, Any]]:
    """The name of a wrapper and its arguments, with values as in ``env_settings``. Raises ``ConfigError``."""
    match = re.fullmatch(r"([\w.]+:\w+)(?:\((.*)\))?", text)
    with contextlib.suppress(ValueError, RecursionError):
        if match is not None:
            return match[1], _pairs(match[2] or "")
    raise ConfigError(
        f"wrappers = {shown(text)}: expected my_package.module:MyWrapper or my_package.module:MyWrapper(name=value, name=value). "
        "Wrappers with other arguments need Python: pass a function that returns the wrapped environment, such as "
        "lambda: MyWrapper(MyEnv())."
    )


SCHEDULES = (
    "a number, linear(from, to), polynomial(from, to, power), exponential(from, to) with both above 0, or a function of the completed "
    "share of the training, 0 … 1"
)
"""What messages expect of a schedule."""


READERS: dict[Any, tuple[str, str, Callable[[Any], Any]]] = {
    int: ("INT", "a whole number", _integer),
    float: ("FLOAT", "a number", _number),
    bool: ("true|false", "true or false", _boolean),
    str: ("TEXT", "text", _text),
    ScheduleText: ("FLOAT|SCHEDULE", SCHEDULES, lambda value: ScheduleText(str(value))),
    tuple[int, ...]: ("LIST", "whole numbers such as 64,64, or none", _integers),
    tuple[str, ...]: ("LIST", "names such as one,two, or none", _names),
    dict[str, Any]: ("KEY=VALUE,...", "key=value pairs", _pairs),
}
"""For each type: what the help of a flag shows, what messages expect, and the function that reads a value. A setting
may also accept words and custom code: the ``Literal`` and ``Custom`` in its type."""
