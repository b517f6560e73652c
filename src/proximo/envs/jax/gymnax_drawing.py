"""Draws states of gymnax's environments: classic control by Gymnasium, as gymnax does; others as boards and planes.

gymnax draws boards with matplotlib, which takes tens of milliseconds for a picture, and has no renderer for some of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax
import numpy as np

from proximo.envs.boards import BLUE, GRAY, GREEN, INK, PALE, PAPER, RED, SIZE, TINTS, board

Draw = Callable[[Any, Any], np.ndarray]
"""``(state, params) -> uint8 [height, width, 3]``"""
CLASSIC = {"Acrobot-v1": 15, "CartPole-v1": 50, "MountainCar-v0": 30, "MountainCarContinuous-v0": 30, "Pendulum-v1": 30}
"""Environments that Gymnasium draws, and its frames per second."""
SLOW = {"DeepSea-bsuite": 4, "FourRooms-misc": 6, "MetaMaze-misc": 6, "FrozenLake-misc": 4, "Catch-bsuite": 6}
"""Frames per second of environments in which something happens in every step."""


def drawing_of(name: str, env: Any) -> tuple[Draw, int] | None:
    """Return a function that draws the states of ``env``, registered as ``name``, and its frames per second; None if the task cannot be drawn."""
    if name in CLASSIC:
        return _classic(name), CLASSIC[name]
    if name.endswith("-MinAtar") or name == "Pong-misc":
        return _channels(env), 12
    if name in _PLANES:
        return _PLANES[name], 20
    return (_BOARDS[name](env), SLOW[name]) if name in _BOARDS else None


def _classic(name: str) -> Draw:
    """Draw the state in the environment of Gymnasium that has the same id. It is made once."""
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
    """Draw observations that have a channel for each kind of object; later channels cover earlier ones."""
    observe = jax.jit(lambda state, params: env.observe(jax.random.key(0), state, None, params))
    colors = np.array([PAPER, *TINTS], np.uint8)

    def draw(state: Any, params: Any) -> np.ndarray:
        there = np.asarray(observe(state, params)) > 0
        return board(colors[np.max(there * np.arange(1, there.shape[-1] + 1), axis=-1)])

    return draw


def _catch(env: Any) -> Draw:
    ground = np.full((env.rows, env.columns, 3), PAPER)
    return lambda s, _: board(ground, [(s.paddle_y, s.paddle_x, BLUE), (s.ball_y, s.ball_x, RED)])


def _deep_sea(env: Any) -> Draw:
    ground = np.where(np.tri(env.size, dtype=bool)[..., None], PAPER, PALE)
    return lambda s, _: board(ground, [(env.size - 1, env.size - 1, GREEN), (s.row, s.column, RED)])


def _maze(env: Any) -> Draw:
    ground = np.where(np.asarray(env.occupied_map, bool)[..., None], GRAY, PAPER)
    return lambda s, _: board(ground, [(*s.goal, GREEN), (*s.pos, RED)])


def _frozen_lake(env: Any) -> Draw:
    from gymnax.environments.misc.frozen_lake import GOAL, HOLE

    tiles = np.asarray(env.desc)[..., None]
    ground = np.where(tiles == HOLE, INK, np.where(tiles == GOAL, GREEN, PALE))
    return lambda s, _: board(ground, [(*divmod(int(s.position), env.ncol), RED)])


_BOARDS: dict[str, Callable[[Any], Draw]] = {
    "Catch-bsuite": _catch,
    "DeepSea-bsuite": _deep_sea,
    "FourRooms-misc": _maze,
    "MetaMaze-misc": _maze,
    "FrozenLake-misc": _frozen_lake,
}


def _plane(discs: list[tuple[Any, float, Any]], reach: float, joints: Any = ()) -> np.ndarray:
    """Draw discs (place, pixels, color), over an arm through ``joints``. The middle of the picture is (0, 0), and its edge ``reach`` away."""
    from PIL import Image, ImageDraw  # imported only to draw

    def at(place: Any) -> tuple[float, float]:
        return SIZE / 2 * (1 + float(place[0]) / reach), SIZE / 2 * (1 - float(place[1]) / reach)

    picture = Image.new("RGB", (SIZE, SIZE), PAPER)
    draw = ImageDraw.Draw(picture)
    draw.line([at(joint) for joint in joints], BLUE, 12)
    for (x, y), radius, color in ((at(place), radius, color) for place, radius, color in discs):
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), color)
    return np.array(picture)


def _reacher(state: Any, params: Any) -> np.ndarray:
    angles = np.asarray(state.angles, float)
    joints = np.concatenate([np.zeros((1, 2)), np.cumsum(np.stack([np.cos(angles), np.sin(angles)], 1), 0)])
    return _plane([(state.goal_xy, 10, GREEN), (joints[-1], 8, RED)], 1.1 * len(angles), joints)


_PLANES: dict[str, Draw] = {
    "PointRobot-misc": lambda s, _: _plane([(s.goal, 20, GREEN), (s.pos, 9, RED)], 1.4),
    "Reacher-misc": _reacher,
    "Swimmer-misc": lambda s, _: _plane(
        [(s.goal_xy, 12, GREEN), *((place, 10, INK) for place in np.asarray(s.urchin_xys)), (s.xy, 9, RED)], 2.0
    ),
}
