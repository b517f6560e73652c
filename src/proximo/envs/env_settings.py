"""Validates ``env_settings``, which change the parameters of an environment."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from proximo.errors import ConfigError, nearest

_EXPECTED = {
    "b": (bool, "true or false"),
    "i": (int, "a whole number"),
    "u": (int, "a whole number"),
    "f": (int | float, "a finite number"),
    "U": (str, "text"),
}
"""The types that a value may have, and their names in messages, by the kind of NumPy's dtype of the default."""


def replace_params(params: Any, settings: dict[str, Any], env_id: str) -> Any:
    """Replace fields of ``params``, a dataclass. Raises ``ConfigError`` if a name is not a field, or a value has another type than
    the default."""
    check_names(settings, [f.name for f in dataclasses.fields(params)], env_id)
    for name, value in settings.items():
        check_type(name, value, getattr(params, name))
    return dataclasses.replace(params, **settings)


def check_names(given: Iterable[str], known: Iterable[str], env_id: str) -> None:
    """Raise ``ConfigError`` if a name in ``given`` is not one of ``known``."""
    known = list(known)
    for name in given:
        if name not in known:
            has = ", ".join(known) or "none"
            raise ConfigError(f"env_settings: {env_id} has no parameter {name!r}{nearest(name, known)}; it has {has}.")


def check_type(name: str, value: Any, default: Any) -> None:
    """Raise ``ConfigError`` if ``value`` has another type than ``default``."""
    kind = np.asarray(default).dtype.kind
    if np.ndim(default) == 0 and kind in _EXPECTED:
        types, words = _EXPECTED[kind]
        fits = isinstance(value, types) and isinstance(value, bool) == (kind == "b")
        if not fits or (isinstance(value, int | float) and not math.isfinite(value)):
            raise ConfigError(f"env_settings: {name} = {value!r}: expected {words}.")
    elif isinstance(value, str):
        raise ConfigError(f"env_settings: {name} = {value!r}: expected a number or true/false.")


def take(given: dict[str, Any], name: str, default: Any) -> tuple[Any, dict[str, Any]]:
    """Split the setting ``name``, of the type of ``default``, from the others: its value and the remaining settings."""
    value = given.get(name, default)
    check_type(name, value, default)
    return value, {key: other for key, other in given.items() if key != name}


def take_limit(given: dict[str, Any], name: str, default: int) -> tuple[int, dict[str, Any]]:
    """``take`` for a limit of the steps of an episode, 1 … 2³¹ - 1."""
    limit, rest = take(given, name, default)
    if not 1 <= limit < 2**31:
        raise ConfigError(f"env_settings: {name} = {limit}: expected a number of steps, 1 … 2³¹ - 1.")
    return limit, rest
