"""Validates ``env_settings``, which change the parameters of an environment."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from proximo.errors import ConfigError, nearest


def replace_params(params: Any, settings: dict[str, Any], env_id: str) -> Any:
    """Replace fields of ``params``, a dataclass. Raises ``ConfigError`` if a name is not a field, or a value has another type than
    the default."""
    if not settings:
        return params
    if not dataclasses.is_dataclass(params) or isinstance(params, type):
        raise ConfigError(f"env_settings: {env_id} has no parameters.")
    fields = [f.name for f in dataclasses.fields(params)]
    check_names(settings, fields, env_id)
    for name, value in settings.items():
        _check(name, value, getattr(params, name))
    return dataclasses.replace(params, **settings)


def check_names(given: Iterable[str], known: Iterable[str], env_id: str) -> None:
    """Raise ``ConfigError`` if a name in ``given`` is not one of ``known``."""
    known = list(known)
    for name in given:
        if name not in known:
            raise ConfigError(
                f"env_settings: {env_id} has no parameter {name!r}{nearest(name, known)}; it has {', '.join(known)}."
            )


def take_limit(given: dict[str, Any], name: str, default: int) -> tuple[int, dict[str, Any]]:
    """Split the setting ``name``, which limits the steps of an episode, from the others: the limit and the remaining settings.
    Raises ``ConfigError`` if the limit is not an integer of 1 … 2³¹ - 1."""
    limit = given.get(name, default)
    if type(limit) is not int or not 1 <= limit < 2**31:
        raise ConfigError(f"env_settings: {name} = {limit!r}: expected a number of steps, 1 … 2³¹ - 1.")
    return limit, {key: value for key, value in given.items() if key != name}


def take_flag(given: dict[str, Any], name: str) -> tuple[bool, dict[str, Any]]:
    """Split the setting ``name``, which is off by default, from the others: the setting and the remaining ones. Raises ``ConfigError`` if it is
    neither true nor false."""
    flag = given.get(name, False)
    _check(name, flag, False)
    return flag, {key: value for key, value in given.items() if key != name}


_EXPECTED = {
    "b": (bool, "true or false"),
    "i": (int, "a whole number"),
    "u": (int, "a whole number"),
    "f": ((int, float), "a finite number"),
    "U": (str, "text"),
}
"""The types that a value may have, and their names in messages, by the kind of NumPy's dtype of the default."""


def _check(name: str, value: Any, default: Any) -> None:
    """Raise ``ConfigError`` if ``value`` has another type than ``default``."""
    kind = np.asarray(default).dtype.kind
    if np.ndim(default) == 0 and kind in _EXPECTED:
        types, words = _EXPECTED[kind]
        fits = isinstance(value, types) and isinstance(value, bool) == (kind == "b")
        if not fits or (isinstance(value, int | float) and not math.isfinite(value)):
            raise ConfigError(f"env_settings: {name} = {value!r}: expected {words}.")
    elif isinstance(value, str):
        raise ConfigError(f"env_settings: {name} = {value!r}: expected a number or true/false.")
