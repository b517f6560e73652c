"""``gymnax:CartPole-v1``: gymnax without its autoreset, which resets at every step."""

import importlib
import sys
from types import ModuleType
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from proximo.envs import hidden_velocities
from proximo.envs.base import Described
from proximo.envs.jax.gymnax_drawing import drawing_of
from proximo.envs.libraries import load, replace_params
from proximo.envs.protocol import JaxEnvironment
from proximo.spaces import from_any

DRAWING = ("seaborn", "matplotlib", "matplotlib.pyplot", "matplotlib.colors", "matplotlib.animation")
"""Modules that gymnax needs for drawing only. They are half of its import time and 105 MB of its memory."""


class _Deferred(ModuleType):
    """Imports a module when one of its attributes is first used."""

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # the import system asks for __path__
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self.__name__), attribute)


def _gymnax() -> ModuleType:
    """Import gymnax without the modules that it needs for drawing only. Later imports get the real ones."""
    if "gymnax" in sys.modules:
        return sys.modules["gymnax"]
    deferred = {name: _Deferred(name) for name in DRAWING if name not in sys.modules}
    for name, module in deferred.items():
        parent, _, child = name.rpartition(".")
        if parent in deferred:
            setattr(deferred[parent], child, module)
    sys.modules.update(deferred)
    try:
        return load("gymnax")
    finally:
        for name in deferred:
            sys.modules.pop(name, None)


def names() -> list[str]:
    """Return all environments, those with hidden velocities included."""
    registered = list(_gymnax().registered_envs)
    return registered + [name for name in hidden_velocities.names() if hidden_velocities.base_of(name) in registered]


def from_name(name: str, settings: dict[str, Any]) -> JaxEnvironment:
    """Make an environment, perhaps with hidden velocities; ``settings`` are fields of its parameters."""
    base = hidden_velocities.base_of(name)
    env = GymnaxEnvironment(base or name, settings)
    return hidden_velocities.JaxHiddenVelocities(env, base) if base else env


class GymnaxEnvironment(Described):
    """An environment of gymnax; ``settings`` are fields of its parameters."""

    def __init__(self, name: str, settings: dict[str, Any]):
        self.env, params = _gymnax().make(name)
        self.default_params = replace_params(params, settings, f"gymnax:{name}")
        self.observation_space = from_any(self.env.observation_space(self.default_params), "observation")
        self.action_space = from_any(self.env.action_space(self.default_params), "action")
        if drawing := drawing_of(name, self.env):
            self.render, self.render_fps = drawing

    def reset(self, key: Key[Array, ""], params: PyTree) -> tuple[PyTree, PyTree]:
        observation, state = self.env.reset_env(key, params)
        return state, observation

    def step(self, key: Key[Array, ""], state: PyTree, action: Array, params: PyTree) -> tuple:
        observation, state, reward, terminated, info = self.env.step_env(key, state, action, params)
        truncated = jnp.asarray(self.env.is_truncated(state, params)) & ~jnp.asarray(terminated)
        return state, observation, reward, terminated, truncated, info
