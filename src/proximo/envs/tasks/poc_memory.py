"""Proof-of-concept memory: remember on which side of a line the good goal was shown."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from proximo.envs.settings import replace_params
from proximo.envs.tasks import drawing
from proximo.spaces import Box, Discrete

CELLS_TO_END = 5
STEP = 0.2


class PocMemoryParams(eqx.Module):
    """``show_steps`` counts the observations with goals after the reset's own; the hard variant is
    ``show_steps=0, freeze_steps=12``."""

    show_steps: Int[Array, ""] | int = 2
    freeze_steps: Int[Array, ""] | int = 2
    glob: Bool[Array, ""] | bool = False
    max_steps: Int[Array, ""] | int = 32


class PocMemoryState(NamedTuple):
    """``cell`` counts steps of .2 from the middle: -5 and 5 are the ends."""

    cell: Int[Array, ""]
    left_goal: Float[Array, ""]
    time: Int[Array, ""]


class PocMemory:
    """A line from -1 to 1 with a goal of +1 and one of -1 at its ends, in random order.

    Observation float32[3]: left goal, position, right goal; the goals show in the reset's observation and in the
    ``show_steps`` after it, then read 0. Actions: 0 left, 1 right, a step of .2. During the first ``freeze_steps`` steps
    nothing moves and the reward is 0. Then a move costs .1, except the one that reaches an end: ±1.6 by its goal, and the
    episode is over. Starts within ±.4 (``glob``: ±.8). Truncated after ``max_steps``. Optimum: return 1.20, length 7.0.
    Rules after Pleines et al., recurrent-ppo-truncated-bptt.
    """

    observation_space = Box((3,), -1.0, 1.0)
    action_space = Discrete(2)
    render_fps = 4

    def __init__(self, settings: dict[str, Any] | None = None):
        self.default_params = replace_params(PocMemoryParams(), settings or {}, "proximo:PocMemory")

    def reset(self, key: Key[Array, ""], params: PocMemoryParams) -> tuple[PocMemoryState, Float[Array, "3"]]:
        """A random start and a random order of the goals."""
        key_cell, key_goal = jax.random.split(key)
        reach = jnp.where(params.glob, CELLS_TO_END - 1, 2)
        cell = jax.random.randint(key_cell, (), -reach, reach + 1)
        left_goal = jnp.where(jax.random.bernoulli(key_goal), 1.0, -1.0)
        state = PocMemoryState(cell, left_goal, jnp.int32(0))
        return state, self._observe(state, params)

    def step(self, key: Key[Array, ""], state: PocMemoryState, action: Array, params: PocMemoryParams) -> tuple:
        """Move, unless frozen."""
        frozen = state.time < params.freeze_steps
        cell = jnp.where(frozen, state.cell, state.cell + 2 * action.astype(jnp.int32) - 1)
        terminated = jnp.abs(cell) >= CELLS_TO_END
        success = terminated & (jnp.where(cell < 0, state.left_goal, -state.left_goal) > 0)
        reward = jnp.where(terminated, jnp.where(success, 1.6, -1.6), jnp.where(frozen, 0.0, -0.1))
        state = PocMemoryState(cell, state.left_goal, state.time + 1)
        truncated = (state.time >= params.max_steps) & ~terminated
        return state, self._observe(state, params), reward, terminated, truncated, {"success": success}

    def render(self, state: PocMemoryState, params: PocMemoryParams) -> np.ndarray:
        """The line, the goals, what is to be remembered, and the return so far."""
        return drawing.poc_memory(state, params, CELLS_TO_END)

    def _observe(self, state: PocMemoryState, params: PocMemoryParams) -> Float[Array, "3"]:
        goal = jnp.where(state.time <= params.show_steps, state.left_goal, 0.0)
        return jnp.stack([goal, state.cell * STEP, -goal]).astype(jnp.float32)
