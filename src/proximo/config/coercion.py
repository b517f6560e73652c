"""Conversion of the value of one setting, from YAML, the text of a flag, or Python."""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proximo.config import custom
from proximo.config.schedule_text import EXPECTED, ScheduleText
from proximo.errors import ConfigError, is_plain, nearest, shown


@dataclass(frozen=True)
class Leaf:
    """One setting, and the values that it accepts."""

    group: str
    name: str
    type: Any
    default: Any
    help: str
    low: float | None
    """Smallest valid number."""
    high: float | None
    """Largest valid number."""
    above: float | None
    """Valid numbers are larger than this one."""


def _expected(leaf: Leaf) -> str:
    if words := custom.choices(leaf.type):
        code = f", or custom code: an object, or its name as {custom.NAMED}" if custom.takes_custom(leaf.type) else ""
        return "one of " + ", ".join(words) + code
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if leaf.type in names:
        return names[leaf.type]
    if leaf.type is ScheduleText:
        return EXPECTED
    if typing.get_origin(leaf.type) is tuple:
        return "names as one,two" if str in typing.get_args(leaf.type) else "whole numbers as 64,64"
    return "key=value pairs"


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError
    number = float(value.replace("_", "")) if isinstance(value, str) else value
    if number != int(number):
        raise ValueError
    return int(value.replace("_", "")) if isinstance(value, str) and value.replace("_", "").isdigit() else int(number)


def _boolean(value: Any) -> bool:
    words = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False, "1": True, "0": False}
    return value if isinstance(value, bool) else words[str(value).lower()]


def _integers(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        value = [part for part in value.strip("()[] ").split(",") if part.strip()]
    return tuple(_integer(v) for v in (value if isinstance(value, list | tuple) else [value]))


def _names(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    if not all(isinstance(part, str) for part in parts):
        raise ValueError
    return tuple(part.strip() for part in parts if part.strip())


def _scalar(text: str) -> Any:
    for read in (int, float, lambda t: {"true": True, "false": False}[t.lower()]):
        try:
            return read(text)
        except (ValueError, KeyError):
            continue
    return text


def _pairs(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(key): v for key, v in value.items()}
    pairs = [part.split("=", 1) for part in value.split(",") if part.strip()]
    return {key.strip(): _scalar(text.strip()) for key, text in pairs}


def _read(leaf: Leaf, value: Any) -> Any:
    kind = leaf.type
    if custom.takes_custom(kind):
        return custom.read(value, custom.choices(kind))
    if words := custom.choices(kind):
        if value not in words:
            raise ValueError
        return value
    if kind is float:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    if kind is str:
        if not isinstance(value, str):
            raise ValueError
        return value
    if kind in (int, bool):
        return _integer(value) if kind is int else _boolean(value)
    if kind is ScheduleText:
        return value if isinstance(value, ScheduleText) else ScheduleText(str(value))
    if typing.get_origin(kind) is tuple:
        return _names(value) if str in typing.get_args(kind) else _integers(value)
    return _pairs(value)


def _numbers(value: Any) -> list[float]:
    if isinstance(value, ScheduleText):
        return [value.initial, value.final]
    if isinstance(value, tuple):
        return [number for number in value if not isinstance(number, str)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _texts(value: Any) -> Iterator[str]:
    """All strings in ``value``, including the keys of mappings."""
    if isinstance(value, str | ScheduleText):
        yield str(value)
    elif isinstance(value, tuple | list | dict):
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _texts(part)


def _shown(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


def coerce(leaf: Leaf, value: Any) -> Any:
    """Convert ``value`` to the type of a setting and check its range.

    Args:
        leaf: the setting.
        value: a value from YAML or Python, or the text of a flag.

    Raises:
        ConfigError: the type or the range is wrong.
    """
    try:
        result = _read(leaf, value)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        hint = nearest(str(value)[:80], custom.choices(leaf.type))
        raise ConfigError(f"{leaf.name} = {shown(value)}: expected {_expected(leaf)}{hint}.") from None
    if not all(map(is_plain, _texts(result))):
        raise ConfigError(f"{leaf.name} = {shown(value)}: expected text without control characters.")
    for number in _numbers(result):
        if not abs(number) <= sys.float_info.max:  # NaN, infinity, or an integer that is too large for a float
            raise ConfigError(f"{leaf.name} = {shown(value)}: expected a finite number.")
        if leaf.low is not None and number < leaf.low:
            raise ConfigError(f"{leaf.name} = {shown(value)}: expected at least {_shown(leaf.low)}.")
        if leaf.high is not None and number > leaf.high:
            raise ConfigError(f"{leaf.name} = {shown(value)}: expected at most {_shown(leaf.high)}.")
        if leaf.above is not None and number <= leaf.above:
            raise ConfigError(f"{leaf.name} = {shown(value)}: expected more than {leaf.above:g}.")
    return result
