"""What brax and MuJoCo Playground share: ``reset(key)`` gives a state, ``step(state, action)`` the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from proximo.envs.jax.libraries import legacy
from proximo.spaces import Box, Dict


class Robot:
    """A robot in proximo's protocol: the raw environment, truncated after ``limit`` steps.

    Their wrappers are left out: they reset all copies to the states that these began with, and call a time limit ``done``. Actions are
    -1 … 1: the environments scale them to the reach of their motors.
    """

    def __init__(self, env: Any, limit: int):
        self.env, self.limit = env, limit
        # Compiled where they are not already: `proximo check` calls them by themselves, and their thousands of operations one by one
        # take minutes.
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)
        self.default_params = ()
        seen = jax.eval_shape(env.reset, legacy(jax.random.key(0))).obs
        parts = isinstance(seen, Mapping)
        self.observation_space = Dict(tuple((k, Box(x.shape)) for k, x in seen.items())) if parts else Box(seen.shape)
        self.action_space = Box((env.action_size,), -1.0, 1.0)

    def reset(self, key: Key[Array, ""], params: PyTree) -> tuple[PyTree, PyTree]:
        """The state is the library's and a count of steps."""
        state = self._reset(legacy(key))
        return (state, jnp.int32(0)), state.obs

    def step(self, key: Key[Array, ""], state: PyTree, action: Array, params: PyTree) -> tuple:
        """One step; one that terminates is not truncated, even at the limit."""
        inner, steps = state
        inner, steps = self._step(inner, action), steps + 1
        terminated = inner.done > 0
        return (inner, steps), inner.obs, inner.reward, terminated, (steps >= self.limit) & ~terminated, {}
