"""Draws states of gymnax: classic control by Gymnasium, MinAtar and Pong as boards, others by ``render``."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax
import numpy as np

from proximo.envs.tasks.boards import PAPER, TINTS, board

Draw = Callable[[Any, Any], np.ndarray]
"""``(state, params) -> uint8 [height, width, 3]``"""
CLASSIC = {"Acrobot-v1": 15, "CartPole-v1": 50, "MountainCar-v0": 30, "MountainCarContinuous-v0": 30, "Pendulum-v1": 30}
"""Environments that Gymnasium draws, and its frames per second."""


def drawing_of(name: str, env: Any) -> tuple[Draw, int] | None:
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
