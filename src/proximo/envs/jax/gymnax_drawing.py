"""Draws states of gymnax: classic control by Gymnasium, MinAtar and Pong as boards, others by their ``render``."""

from __future__ import annotations

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
    """A function that draws the states of ``env``, registered as ``name``, and its frames per second; None: no renderer."""
    if name in CLASSIC:
        return _classic(name), CLASSIC[name]
    if name.endswith("-MinAtar") or name == "Pong-misc":
        return _channels(env), 12
    return (_rendered(env), 6) if hasattr(env, "render") else None


def _classic(name: str) -> Draw:
    """Draw the state in the environment of Gymnasium that has the same id, as gymnax does. It is made once."""
    shown: list[Any] = []

    def draw(state: Any, params: Any) -> np.ndarray:
        from gymnax.visualize import vis_gym  # it imports matplotlib

        if not shown:
            shown.append(gym.make(name, render_mode="rgb_array", disable_env_checker=True).unwrapped)
            shown[0].reset()
        vis_gym.set_gym_params(shown[0], name, params)
        shown[0].state = vis_gym.get_gym_state(state, name)
        if name == "Pendulum-v1":
            shown[0].last_u = float(np.squeeze(state.last_u))
        return shown[0].render()

    return draw


def _channels(env: Any) -> Draw:
    """Draw observations that have a channel for each kind of object; later channels cover earlier ones. With
    matplotlib, as in gymnax, a picture takes tens of milliseconds."""
    observe = jax.jit(lambda state, params: env.observe(jax.random.key(0), state, None, params))
    colors = np.array([PAPER, *TINTS], np.uint8)

    def draw(state: Any, params: Any) -> np.ndarray:
        there = np.asarray(observe(state, params)) > 0
        return board(colors[np.max(there * np.arange(1, there.shape[-1] + 1), axis=-1)])

    return draw


def _rendered(env: Any) -> Draw:
    """Draw with matplotlib, as gymnax does."""

    def draw(state: Any, params: Any) -> np.ndarray:
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

    return draw
