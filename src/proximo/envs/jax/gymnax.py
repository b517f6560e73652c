"""gymnax: its ``step_env`` and its own truncation test, not its autoreset (which resets at every step)."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from proximo.envs import masked
from proximo.envs.jax.drawing import FPS, drawing_of
from proximo.envs.settings import replace_params
from proximo.errors import EnvError, nearest
from proximo.spaces import from_any

# Fetches its data from the internet when it is made.
DOWNLOADS = ("MNISTBandit-bsuite",)


# What gymnax imports for drawing only: with pandas and scipy behind it half of its import time, and 105 MB (219 for 324).
DRAWING = ("seaborn", "matplotlib.pyplot")


class _Deferred(ModuleType):
    """Stands for a module that is imported when one of its attributes is first used."""

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self.__name__), attribute)


def _gymnax() -> ModuleType:
    """The library, imported when it is first needed, without what it needs for drawing only."""
    if "gymnax" not in sys.modules:
        deferred = [name for name in DRAWING if name not in sys.modules]
        sys.modules.update({name: _Deferred(name) for name in deferred})
        try:
            import gymnax  # noqa: F401
        except ModuleNotFoundError as error:
            if error.name != "gymnax":
                raise
            raise EnvError("gymnax is not installed: pip install gymnax (1.0.1 needs gymnasium < 1.4).") from None
        finally:
            # Only gymnax holds the stand-ins: whoever imports these modules later gets the real ones.
            for name in deferred:
                sys.modules.pop(name, None)
    return sys.modules["gymnax"]


def names() -> list[str]:
    """What gymnax has registered, and which of these can hide their velocities; none where it is not installed."""
    if importlib.util.find_spec("gymnax") is None:
        return []
    registered = list(_gymnax().registered_envs)
    return [*registered, *(name for name in masked.names() if masked.base(name) in registered)]


class GymnaxEnvironment:
    """An environment of gymnax in proximo's protocol; ``settings`` are fields of its parameters."""

    def __init__(self, name: str, settings: dict[str, Any]):
        gymnax = _gymnax()
        if name not in gymnax.registered_envs:
            raise EnvError(f"gymnax has no environment {name!r}{nearest(name, names())}; `proximo envs gymnax` lists them.")
        try:
            self.env, params = gymnax.make(name)
        except Exception as error:
            raise EnvError(f"gymnax could not make {name!r}: {type(error).__name__}: {error}") from error
        self.default_params = replace_params(params, settings, f"gymnax:{name}")
        self.observation_space = from_any(self.env.observation_space(params), "observation")
        self.action_space = from_any(self.env.action_space(params), "action")
        if draw := drawing_of(name, self.env):
            self.render, self.render_fps = draw, FPS.get(name, 12)

    def reset(self, key: Key[Array, ""], params: PyTree) -> tuple[PyTree, PyTree]:
        """gymnax gives the observation first."""
        observation, state = self.env.reset_env(key, params)
        return state, observation

    def step(self, key: Key[Array, ""], state: PyTree, action: Array, params: PyTree) -> tuple:
        """One step; a step that terminates is not truncated, even at the time limit."""
        observation, state, reward, terminated, info = self.env.step_env(key, state, action, params)
        truncated = jnp.asarray(self.env.is_truncated(state, params)) & ~jnp.asarray(terminated)
        return state, observation, reward, terminated, truncated, info
