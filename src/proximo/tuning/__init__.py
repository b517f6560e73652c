"""Searches for settings: Optuna draws trials from a declared space, and many of them train in one compiled program."""

from __future__ import annotations

import importlib.util

from proximo.errors import lacking


def check_optuna(what: str) -> None:
    """Raise ``EnvError`` if Optuna is missing, which ``what``, a command or a function, needs to search."""
    if importlib.util.find_spec("optuna") is None:
        raise lacking(what, "tune")
