"""Searches for settings: Optuna draws trials from a declared space, and many of them train in one compiled program."""

from __future__ import annotations

import importlib.util

from proximo.errors import lacking


def check_libraries(what: str) -> None:
    """Raise ``EnvError`` if a library is missing that ``what``, a command or a function, needs to search."""
    if any(importlib.util.find_spec(library) is None for library in ("optuna", "matplotlib")):
        raise lacking(what, "tune")
