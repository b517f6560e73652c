"""``env_settings``: the fields of an environment's parameters that a user may change."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from proximo.errors import ConfigError, nearest


def replace_params(params: Any, settings: dict[str, Any], env_id: str) -> Any:
    """``params`` (a dataclass) with ``settings`` in place; raises ``ConfigError`` for a name or a type that does not fit."""
    if not settings:
        return params
    if not dataclasses.is_dataclass(params) or isinstance(params, type):
        raise ConfigError(f"env_settings: {env_id} has no parameters.")
    fields = [f.name for f in dataclasses.fields(params)]
    hold_names(settings, fields, env_id)
    for name, value in settings.items():
        _hold(name, value, getattr(params, name))
    return dataclasses.replace(params, **settings)


def hold_names(given: Iterable[str], known: Iterable[str], env_id: str) -> None:
    """Raise ``ConfigError`` for a name that is none of the environment's parameters."""
    known = list(known)
    for name in given:
        if name not in known:
            raise ConfigError(
                f"env_settings: {env_id} has no parameter {name!r}{nearest(name, known)}; it has {', '.join(known)}."
            )


def take_limit(given: dict[str, Any], name: str, default: int) -> tuple[int, dict[str, Any]]:
    """The limit of steps that the settings have under ``name``, and the others of them."""
    limit = given.get(name, default)
    if type(limit) is not int or not 1 <= limit < 2**31:
        raise ConfigError(f"env_settings: {name} = {limit!r}: expected a number of steps, 1 … 2³¹ - 1.")
    return limit, {key: value for key, value in given.items() if key != name}


def _hold(name: str, value: Any, default: Any) -> None:
    """Raise ``ConfigError`` when ``value`` is not of the kind of ``default``."""
    kind = np.asarray(default).dtype.kind
    words = {"b": "true or false", "i": "a whole number", "u": "a whole number", "f": "a finite number"}
    fits = isinstance(value, bool) if kind == "b" else isinstance(value, int | float) and not isinstance(value, bool)
    if kind in "iu":
        fits = fits and isinstance(value, int)
    if np.ndim(default) == 0 and kind in words and not (fits and math.isfinite(value)):
        raise ConfigError(f"env_settings: {name} = {value!r}: expected {words[kind]}.")
    if isinstance(value, str):
        raise ConfigError(f"env_settings: {name} = {value!r}: expected a number or true/false.")
