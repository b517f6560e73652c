"""Environments of benchmarks/fingerprint.py: irregular episodes, an action mask, an image; one of each kind in JAX and in Gymnasium's interface."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Key

from proximo.spaces import Box, Dict, Discrete, MultiBinary


class State(NamedTuple):
    """Position on a circle of five, and steps so far."""

    place: Array
    time: Array


class MaskedCircle:
    """Five places on a circle; the action that equals the place is forbidden. Episodes end at random, or at a limit of 17 steps."""

    observation_space = Dict((("action_mask", MultiBinary((5,))), ("place", Box((1,), 0.0, 5.0))))
    action_space = Discrete(5)
    default_params = ()

    def reset(self, key: Key[Array, ""], params: tuple) -> tuple[State, Any]:
        state = State(jax.random.randint(key, (), 0, 5), jnp.int32(0))
        return state, self._observation(state)

    def _observation(self, state: State) -> Any:
        return {"action_mask": (jnp.arange(5) != state.place).astype(jnp.int8), "place": state.place.astype(jnp.float32)[None]}

    def step(self, key: Key[Array, ""], state: State, action: Array, params: tuple) -> tuple:
        after = State((state.place + action) % 5, state.time + 1)
        reward = (after.place == 2).astype(jnp.float32)
        terminated = jax.random.bernoulli(key, 0.1)
        return after, self._observation(after), reward, terminated, after.time >= 17, {}


class MaskedWalk(gymnasium.Env):
    """The same in Gymnasium's interface."""

    observation_space = spaces.Dict({"action_mask": spaces.MultiBinary(5), "place": spaces.Box(0.0, 5.0, (1,))})
    action_space = spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(5)), 0
        return self._observation(), {}

    def _observation(self) -> Any:
        return {"action_mask": (np.arange(5) != self.place).astype(np.int8), "place": np.array([self.place], np.float32)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.place, self.time = (self.place + int(action)) % 5, self.time + 1
        terminated = bool(self.np_random.random() < 0.1)
        return self._observation(), float(self.place == 2), terminated, self.time >= 17, {}


class Picture(gymnasium.Env):
    """A bright row in a picture of 36 x 36, which the action moves up or down; episodes of 5 to 20 steps."""

    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.row, self.left = int(self.np_random.integers(36)), int(self.np_random.integers(5, 21))
        return self._observation(), {}

    def _observation(self) -> np.ndarray:
        picture = np.zeros((36, 36, 1), np.uint8)
        picture[self.row] = 255
        return picture

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.row, self.left = (self.row + int(action) - 1) % 36, self.left - 1
        return self._observation(), float(self.row < 18), False, self.left <= 0, {}
