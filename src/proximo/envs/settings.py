"""``env_settings``: the fields of an environment's parameters that a user may change."""

from __future__ import annotations

import dataclasses
from typing import Any

from proximo.errors import ConfigError, nearest


def replace_params(params: Any, settings: dict[str, Any], env_id: str) -> Any:
    """``params`` (a dataclass) with ``settings`` in place; raises ``ConfigError`` for a name or a type that does not fit."""
    if not settings:
        return params
    is_instance = dataclasses.is_dataclass(params) and not isinstance(params, type)
    fields = [f.name for f in dataclasses.fields(params)] if is_instance else []
    for name, value in settings.items():
        if name not in fields:
            known = f"; it has {', '.join(fields)}" if fields else "; it has none"
            raise ConfigError(f"env_settings: {env_id} has no parameter {name!r}{nearest(name, fields)}{known}.")
        if isinstance(value, str):
            raise ConfigError(f"env_settings: {name} = {value!r}: expected a number or true/false.")
    return dataclasses.replace(params, **settings)
