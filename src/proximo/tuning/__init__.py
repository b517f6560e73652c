"""Searches for settings: Optuna draws trials from a declared space, and many of them train in one compiled program."""

from __future__ import annotations

import importlib.util
from typing import Any

from proximo.errors import ConfigError, lacking, shown
from proximo.signatures import is_number


def check_seconds(seconds: Any) -> None:
    """Raise ``ConfigError`` if the time limit is neither None nor a positive number."""
    if seconds is not None and not (is_number(seconds) and float(seconds) > 0):
        raise ConfigError(f"seconds = {f'{seconds:g}' if is_number(seconds) else shown(seconds)}: expected a number above 0.")


def check_libraries(what: str) -> None:
    """Raise ``EnvError`` if a library is missing that ``what``, a command or a function, needs to search."""
    if any(importlib.util.find_spec(library) is None for library in ("optuna", "matplotlib")):
        raise lacking(what, "tune")
