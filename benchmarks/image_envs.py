"""A JAX environment with images of the size of Atari's, for measurements of speed."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from proximo.spaces import Box, Discrete

SIZE, FRAMES, SQUARE = 84, 4, 12


class SquaresState(NamedTuple):
    """The last frames, the position of the square, and the number of steps so far."""

    frames: jax.Array
    column: jax.Array
    time: jax.Array


class Squares:
    """A white square that the agent moves left or right, in four stacked frames of 84 × 84 bytes. In the middle, each step has reward 1."""

    observation_space = Box((SIZE, SIZE, FRAMES), 0.0, 255.0, "uint8")
    action_space = Discrete(3)

    def __init__(self):
        self.default_params = {"limit": 200}

    def reset(self, key, params):
        """Start with the square at a random place."""
        column = jax.random.randint(key, (), 0, SIZE)
        frames = jnp.repeat(self.draw(column)[..., None], FRAMES, axis=-1)
        return SquaresState(frames, column, jnp.int32(0)), frames

    def step(self, key, state, action, params):
        """Move the square by three columns."""
        column = jnp.clip(state.column + 3 * (action - 1), 0, SIZE - 1)
        frames = jnp.concatenate([state.frames[..., 1:], self.draw(column)[..., None]], axis=-1)
        state = SquaresState(frames, column, state.time + 1)
        reward = (jnp.abs(column - SIZE // 2) < SQUARE).astype(jnp.float32)
        return state, frames, reward, jnp.array(False), state.time >= params["limit"], {}

    def draw(self, column):
        """One frame."""
        places = jnp.arange(SIZE)
        inside = (jnp.abs(places - column) < SQUARE)[None] & (jnp.abs(places - SIZE // 2) < SQUARE)[:, None]
        return jnp.where(inside, 255, 0).astype(jnp.uint8)
