"""Imports a library when one of its environments is made, and reports a missing library or an unknown name."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from types import ModuleType

import jax
from jaxtyping import Array, Key, UInt32

from proximo.custom_code import custom_code_errors
from proximo.errors import EnvError, lacking, nearest


def load(module: str, env_id: str, extra: str) -> ModuleType:
    """Import ``module``.

    Raises:
        EnvError: The library is not installed (the message names the ``extra`` to install), or its import fails.
    """
    if not _is_installed(module):
        raise lacking(env_id, extra)
    with custom_code_errors(f"Importing {module}"):
        return importlib.import_module(module)


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def listed(module: str, names: Iterable[str]) -> list[str]:
    """Return ``names`` if the library of ``module`` is installed, else an empty list.

    Adapters list the names in their source because importing these libraries takes several seconds.
    """
    return list(names) if _is_installed(module) else []


def check_known(name: str, known: Iterable[str], library: str) -> None:
    """Raise ``EnvError`` if ``name`` is not one of ``known``."""
    known = list(known)
    if name not in known:
        raise EnvError(f"{library} has no environment {name!r}{nearest(name, known)}; `proximo envs {library}` lists them.")


def legacy(key: Key[Array, ""]) -> UInt32[Array, " words"]:
    """Return ``key`` as integers, because these libraries expect such keys or keep them in their state."""
    return jax.random.key_data(key)
