"""The libraries of environments: the prefix of their ids, the adapter, and the command that installs them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from proximo.errors import EnvError, nearest


class Library(NamedTuple):
    """A library of environments, whose ids are ``LIBRARY:NAME``."""

    adapter: str
    """Module with the functions ``names`` and ``from_name``."""
    is_jax: bool
    """Whether its environments are JAX environments; otherwise they are Gymnasium environments."""
    install: str = ""
    """Arguments of ``pip install``; empty for proximo's own tasks."""


LIBRARIES = {
    "gymnax": Library("proximo.envs.jax.gymnax", True, "gymnax"),
    "proximo": Library("proximo.envs.tasks", True),
    "brax": Library("proximo.envs.jax.brax", True, "'proximo[brax]'"),
    "craftax": Library("proximo.envs.jax.craftax", True, "'proximo[craftax]'"),
    "jumanji": Library("proximo.envs.jax.jumanji", True, "'proximo[jumanji]'"),
    "navix": Library("proximo.envs.jax.navix", True, "'proximo[navix]'"),
    "playground": Library("proximo.envs.jax.playground", True, "'proximo[playground]'"),
    "ale": Library("proximo.envs.gymnasium.ale", False, "'proximo[atari]'"),
    "envpool": Library("proximo.envs.gymnasium.envpool", False, "'proximo[envpool]'"),
    "minigrid": Library("proximo.envs.gymnasium.minigrid", False, "'proximo[minigrid]'"),
    "memory-gym": Library(
        "proximo.envs.gymnasium.memory_gym",
        False,
        "--no-deps memory-gym   # without its dependencies, which require an older Gymnasium",
    ),
}
"""What may precede the colon of an id, besides modules of the user."""
ID_FORMS = ", ".join(("Gymnasium's NAME-v1", *(f"{library}:NAME" for library in LIBRARIES), "or my_package.module:MyEnv"))


def check_known(env_id: str, known: Iterable[str]) -> None:
    """Raise ``EnvError`` unless the name in ``env_id`` is one of the ``known`` names of its library. If there are none, the library
    is not installed."""
    (library, _, name), known = env_id.partition(":"), list(known)
    if not known:
        raise not_installed(env_id)
    if name not in known:
        raise EnvError(f"{library} has no environment {name!r}{nearest(name, known)}; `proximo envs {library}` lists them.")


def not_installed(env_id: str) -> EnvError:
    """The error for an environment whose library is not installed."""
    install = LIBRARIES[env_id.partition(":")[0]].install
    return EnvError(f"{env_id} needs a library that is not installed: pip install {install}.")
