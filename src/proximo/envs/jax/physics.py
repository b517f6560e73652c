"""Robots of brax and MuJoCo Playground, whose ``reset(key)`` and ``step(state, action)`` return a state."""

import contextlib
import io
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from proximo.envs.base import Described
from proximo.spaces import Box, Dict


def quietly() -> contextlib.AbstractContextManager:
    """Drop what an import prints: without Warp, which MuJoCo's MJX uses on GPUs only, it prints two lines."""
    return contextlib.redirect_stdout(io.StringIO())


class Robot(Described):
    """A robot without the wrappers of its library, which reset every copy to its first initial state and report a time
    limit as ``done``. It is truncated after ``limit`` steps. Actions are -1 … 1.
    """

    def __init__(self, env: Any, limit: int):
        self.env, self.limit = env, limit
        # `proximo check` calls reset and step outside of a compiled program. Without jit this takes minutes.
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)
        self.default_params = ()
        seen = jax.eval_shape(lambda: env.reset(jax.random.key_data(jax.random.key(0)))).obs
        parts = isinstance(seen, Mapping)
        self.observation_space = Dict({name: Box(x.shape) for name, x in seen.items()}) if parts else Box(seen.shape)
        self.action_space = Box((env.action_size,), -1.0, 1.0)

    def reset(self, key: Key[Array, ""], params: PyTree) -> tuple[PyTree, PyTree]:
        state = self._reset(jax.random.key_data(key))
        return (state, jnp.int32(0)), state.obs

    def step(self, key: Key[Array, ""], state: PyTree, action: Array, params: PyTree) -> tuple:
        inner, steps = state
        inner, steps = self._step(inner, action), steps + 1
        terminated = inner.done > 0
        return (inner, steps), inner.obs, inner.reward, terminated, (steps >= self.limit) & ~terminated, {}
