"""``gymnax:CartPole-v1``: gymnax without its autoreset, which resets at every step."""

import functools
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from proximo.envs.hidden_velocities import BASES, JaxHiddenVelocities
from proximo.envs.libraries import Described, load, replace_params
from proximo.envs.protocol import JaxEnvironment
from proximo.envs.tasks.boards import PAPER, TINTS, board
from proximo.spaces import from_any

DRAWING = ("seaborn", "matplotlib", "matplotlib.pyplot", "matplotlib.colors", "matplotlib.animation")
"""Modules that gymnax needs for drawing only. They are half of its import time and 105 MB of its memory."""
CLASSIC = {"Acrobot-v1": 15, "CartPole-v1": 50, "MountainCar-v0": 30, "MountainCarContinuous-v0": 30, "Pendulum-v1": 30}
"""Environments that Gymnasium draws, and its frames per second."""


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
    return registered + [name for name, base in BASES.items() if base in registered]


def from_name(name: str, settings: dict[str, Any]) -> JaxEnvironment:
    """Make an environment, perhaps with hidden velocities; ``settings`` are fields of its parameters."""
    env = GymnaxEnvironment(BASES.get(name, name), settings)
    return JaxHiddenVelocities(env, BASES[name]) if name in BASES else env


class GymnaxEnvironment(Described, JaxEnvironment):
    """An environment of gymnax; ``settings`` are fields of its parameters."""

    def __init__(self, name: str, settings: dict[str, Any]):
        self.env, params = _gymnax().make(name)
        self.default_params = replace_params(params, settings, f"gymnax:{name}")
        self.observation_space = from_any(self.env.observation_space(self.default_params), "observation")
        self.action_space = from_any(self.env.action_space(self.default_params), "action")
        if drawing := drawing_of(name, self.env):
            self.render, self.render_fps = drawing

    def reset(self, key, params):
        observation, state = self.env.reset_env(key, params)
        return state, observation

    def step(self, key, state, action, params):
        observation, state, reward, terminated, info = self.env.step_env(key, state, action, params)
        truncated = jnp.asarray(self.env.is_truncated(state, params)) & ~jnp.asarray(terminated)
        return state, observation, reward, terminated, truncated, info


def drawing_of(name: str, env: Any) -> tuple[Callable[[Any, Any], np.ndarray], int] | None:
    """A function that draws states of ``env``, registered as ``name``, and its frames per second; or None."""
    if name in CLASSIC:
        return functools.partial(_draw_classic, name), CLASSIC[name]
    if name.endswith("-MinAtar") or name == "Pong-misc":
        observe = jax.jit(lambda state, params: env.observe(jax.random.key(0), state, None, params))
        return functools.partial(_draw_channels, observe), 12
    return (functools.partial(_draw_rendered, env), 6) if hasattr(env, "render") else None


@functools.cache
def _of_gymnasium(name: str) -> Any:
    env: Any = gym.make(name, render_mode="rgb_array", disable_env_checker=True).unwrapped
    env.reset()
    return env


def _draw_classic(name: str, state: Any, params: Any) -> np.ndarray:
    """Draw the state in the environment of Gymnasium that has the same id, as gymnax does."""
    from gymnax.visualize import vis_gym  # it imports matplotlib

    env = _of_gymnasium(name)
    vis_gym.set_gym_params(env, name, params)
    env.state = vis_gym.get_gym_state(state, name)
    if name == "Pendulum-v1":
        env.last_u = float(np.squeeze(state.last_u))
    return env.render()


def _draw_channels(observe: Callable[[Any, Any], Any], state: Any, params: Any) -> np.ndarray:
    """Draw an observation that has a channel for each kind of object; later channels cover earlier ones."""
    there = np.asarray(observe(state, params)) > 0
    return board(np.array([PAPER, *TINTS], np.uint8)[np.max(there * np.arange(1, there.shape[-1] + 1), axis=-1)])


def _draw_rendered(env: Any, state: Any, params: Any) -> np.ndarray:
    """Draw with matplotlib, as gymnax does."""
    import matplotlib as mpl

    if "matplotlib.pyplot" not in sys.modules:
        mpl.use("agg")  # no window
    import matplotlib.pyplot as plt

    with plt.style.context("default"):  # a notebook has other sizes
        figure, _ = env.render(state, params)
        figure.canvas.draw()
    picture = np.array(figure.canvas.buffer_rgba())[..., :3]
    plt.close(figure)
    return picture
