"""Imports a library when one of its environments is made."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from types import ModuleType

from proximo.custom_code import custom_code_errors
from proximo.envs.libraries import not_installed


def load(module: str, env_id: str) -> ModuleType:
    """Import ``module``. Raises ``EnvError`` if its library is not installed, or if the import fails."""
    if not _is_installed(module):
        raise not_installed(env_id)
    with custom_code_errors(f"Importing {module}"):
        return importlib.import_module(module)


def listed(module: str, names: Iterable[str]) -> list[str]:
    """Return ``names`` if the library of ``module`` is installed, else an empty list.

    Adapters list the names in their source because importing these libraries takes several seconds.
    """
    return list(names) if _is_installed(module) else []


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None
