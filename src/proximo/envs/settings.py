"""``env_settings``: the fields of an environment's parameters that a user may change."""

from __future__ import annotations

import dataclasses
from typing import Any

from proximo.errors import ConfigError, nearest


def replace_params(params: Any, settings: dict[str, Any], env_id: str) -> Any:
    """``params`` (a dataclass) with ``settings`` in place; raises ``ConfigError`` for a name or a type that does not fit."""
    if not settings:
        return params
    if not dataclasses.is_dataclass(params) or isinstance(params, type):
        raise ConfigError(f"env_settings: {env_id} has no parameters.")
    fields = [f.name for f in dataclasses.fields(params)]
    for name, value in settings.items():
        if name not in fields:
            raise ConfigError(
                f"env_settings: {env_id} has no parameter {name!r}{nearest(name, fields)}; it has {', '.join(fields)}."
            )
        if isinstance(value, str):
            raise ConfigError(f"env_settings: {name} = {value!r}: expected a number or true/false.")
    return dataclasses.replace(params, **settings)
