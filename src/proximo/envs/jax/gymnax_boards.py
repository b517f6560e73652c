"""Draws gymnax's board games and mazes, one color for each cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from proximo.envs.canvas import BLUE, GRAY, GREEN, INK, PALE, PAPER, RED, TINTS, board

Draw = Callable[[Any, Any], np.ndarray]
"""``(state, params) -> uint8 [height, width, 3]``"""


def drawing_of(name: str, env: Any) -> Draw | None:
    """Return a function that draws the states of ``env``; None if it is not a board or a maze."""
    if name.endswith("-MinAtar") or name == "Pong-misc":
        return _channels(env)
    return _BOARDS[name](env) if name in _BOARDS else None


def _channels(env: Any) -> Draw:
    """Draw observations that have a channel for each kind of object; later channels cover earlier ones."""
    observe = jax.jit(lambda state, params: env.observe(jax.random.key(0), state, None, params))
    colors = np.array([PAPER, *TINTS], np.uint8)

    def draw(state: Any, params: Any) -> np.ndarray:
        there = np.asarray(observe(state, params)) > 0
        kinds = np.max(there * np.arange(1, there.shape[-1] + 1), axis=-1)
        return board(colors[kinds])

    return draw


def _cells(ground: np.ndarray, marks: list[tuple[Any, Any, tuple[int, int, int]]]) -> np.ndarray:
    """Draw ``ground`` with ``marks`` (row, column, color); marks outside are not drawn."""
    cells = np.array(ground, np.uint8)
    for row, column, color in marks:
        if 0 <= int(row) < cells.shape[0] and 0 <= int(column) < cells.shape[1]:
            cells[int(row), int(column)] = color
    return board(cells)


def _catch(env: Any) -> Draw:
    ground = np.full((env.rows, env.columns, 3), PAPER)
    return lambda s, _: _cells(ground, [(s.paddle_y, s.paddle_x, BLUE), (s.ball_y, s.ball_x, RED)])


def _deep_sea(env: Any) -> Draw:
    ground = np.where(np.tri(env.size, dtype=bool)[..., None], PAPER, PALE)
    return lambda s, _: _cells(ground, [(env.size - 1, env.size - 1, GREEN), (s.row, s.column, RED)])


def _maze(env: Any) -> Draw:
    ground = np.where(np.asarray(env.occupied_map, bool)[..., None], GRAY, PAPER)
    return lambda s, _: _cells(ground, [(s.goal[0], s.goal[1], GREEN), (s.pos[0], s.pos[1], RED)])


def _frozen_lake(env: Any) -> Draw:
    from gymnax.environments.misc.frozen_lake import GOAL, HOLE

    tiles = np.asarray(env.desc)[..., None]
    ground = np.where(tiles == HOLE, INK, np.where(tiles == GOAL, GREEN, PALE))
    return lambda s, _: _cells(ground, [(s.position // env.ncol, s.position % env.ncol, RED)])


_BOARDS: dict[str, Callable[[Any], Draw]] = {
    "Catch-bsuite": _catch,
    "DeepSea-bsuite": _deep_sea,
    "FourRooms-misc": _maze,
    "MetaMaze-misc": _maze,
    "FrozenLake-misc": _frozen_lake,
}
