"""Proof-of-concept memory: remember on which side of a line the good goal was shown.

Rules after Pleines et al., recurrent-ppo-truncated-bptt.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from proximo.envs.libraries import Described, replace_params
from proximo.envs.tasks.boards import BLUE, GRAY, GREEN, PALE, PAPER, RED, board
from proximo.spaces import Box, Discrete

CELLS_TO_END = 5
STEP = 0.2


class PocMemoryParams(eqx.Module):
    """Parameters of ``PocMemory``. The hard variant is ``show_steps=0, freeze_steps=12``."""

    show_steps: Int[Array, ""] | int = 2
    """Number of observations after the first one that show the goals."""
    freeze_steps: Int[Array, ""] | int = 2
    """Number of steps at the start in which the agent cannot move."""
    glob: Bool[Array, ""] | bool = False
    """Start positions within ±0.8 instead of ±0.4."""
    max_steps: Int[Array, ""] | int = 32
    """Steps after which an episode is truncated."""


class PocMemoryState(NamedTuple):
    """``cell`` is the position in steps of 0.2 from the middle: -5 and 5 are the ends."""

    cell: Int[Array, ""]
    left_goal: Float[Array, ""]
    time: Int[Array, ""]


class PocMemory(Described):
    """A line from -1 to 1 with a goal of +1 and one of -1 at its ends, in random order.

    Observation, float32[3]: left goal, position, right goal. The first observation and the ``show_steps`` after it show the goals;
    later they read 0. Actions: 0 moves left, 1 moves right, by 0.2. During the first ``freeze_steps`` steps the agent does not move
    and the reward is 0. Then each move costs 0.1. The move that reaches an end gives 1.6 at the good goal, -1.6 at the bad one, and
    terminates. The best mean return is 1.20, with a mean length of 7.0.
    """

    observation_space = Box((3,), -1.0, 1.0)
    action_space = Discrete(2)
    render_fps = 4

    def __init__(self, settings: dict[str, Any] | None = None):
        self.default_params = replace_params(PocMemoryParams(), settings or {}, "proximo:PocMemory")

    def reset(self, key: Key[Array, ""], params: PocMemoryParams) -> tuple[PocMemoryState, Float[Array, "3"]]:
        key_cell, key_goal = jax.random.split(key)
        reach = jnp.where(params.glob, CELLS_TO_END - 1, 2)
        cell = jax.random.randint(key_cell, (), -reach, reach + 1)
        left_goal = jnp.where(jax.random.bernoulli(key_goal), 1.0, -1.0)
        state = PocMemoryState(cell, left_goal, jnp.int32(0))
        return state, self._observe(state, params)

    def step(self, key: Key[Array, ""], state: PocMemoryState, action: Array, params: PocMemoryParams) -> tuple:
        frozen = state.time < params.freeze_steps
        cell = jnp.where(frozen, state.cell, state.cell + 2 * action.astype(jnp.int32) - 1)
        terminated = jnp.abs(cell) >= CELLS_TO_END
        success = terminated & (jnp.where(cell < 0, state.left_goal, -state.left_goal) > 0)
        reward = jnp.where(terminated, jnp.where(success, 1.6, -1.6), jnp.where(frozen, 0.0, -0.1))
        state = PocMemoryState(cell, state.left_goal, state.time + 1)
        truncated = (state.time >= params.max_steps) & ~terminated
        return state, self._observe(state, params), reward, terminated, truncated, {"success": success}

    def render(self, state: PocMemoryState, params: PocMemoryParams) -> np.ndarray:
        """Draw the goals as the agent sees them (gray: hidden), its place on the line, and the goals."""
        goals = [GREEN, RED] if state.left_goal > 0 else [RED, GREEN]
        over = abs(int(state.cell)) >= CELLS_TO_END
        cells = np.full((7, 2 * CELLS_TO_END + 1, 3), PAPER)
        cells[3], cells[5, [0, -1]] = PALE, goals
        cells[1, [0, -1]] = goals if over or state.time <= params.show_steps else GRAY
        cells[3, CELLS_TO_END + np.clip(state.cell, -CELLS_TO_END, CELLS_TO_END)] = BLUE
        return board(cells)

    def _observe(self, state: PocMemoryState, params: PocMemoryParams) -> Float[Array, "3"]:
        goal = jnp.where(state.time <= params.show_steps, state.left_goal, 0.0)
        return jnp.stack([goal, state.cell * STEP, -goal]).astype(jnp.float32)
