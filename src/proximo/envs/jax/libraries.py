"""What the adapters share: a library is imported when one of its environments is made, and not before."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from types import ModuleType

import jax
from jaxtyping import Array, Key, UInt32

from proximo.errors import EnvError, lacking, nearest
from proximo.users_code import users_code


def load(module: str, env_id: str, extra: str) -> ModuleType:
    """``module``, imported. Raises ``EnvError``: with proximo's ``extra`` where its library is not installed, with what the library
    says where it cannot be imported."""
    if not _is_installed(module):
        raise lacking(env_id, extra)
    with users_code(f"Importing {module}"):
        return importlib.import_module(module)


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def listed(module: str, names: Iterable[str]) -> list[str]:
    """``names`` where the library of ``module`` is installed, else none. They are written down in the adapters, because importing
    these libraries takes 5 to 12 seconds each."""
    return list(names) if _is_installed(module) else []


def hold_known(name: str, known: Iterable[str], library: str) -> None:
    """Raise ``EnvError`` where a library has no environment of that name."""
    known = list(known)
    if name not in known:
        raise EnvError(f"{library} has no environment {name!r}{nearest(name, known)}; `proximo envs {library}` lists them.")


def legacy(key: Key[Array, ""]) -> UInt32[Array, " words"]:
    """``key`` as plain numbers: these libraries know no other, or keep it in their state, which must be cast and compared."""
    return jax.random.key_data(key)
