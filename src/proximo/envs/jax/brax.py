"""``brax:ant``: brax without its wrappers. ``Robot`` also adapts MuJoCo Playground."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from proximo.envs.libraries import Described, check_names, load, take_limit
from proximo.envs.protocol import JaxEnvironment
from proximo.spaces import Box, Dict

LIMIT = 1000
"""Default steps of an episode, as in brax."""


def names() -> list[str]:
    """Return all but ``swimmer``, which needs an older JAX."""
    return [
        "ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum", "inverted_pendulum", "pusher",
        "reacher", "walker2d",
    ]  # fmt: skip


def from_name(name: str, settings: dict[str, Any]) -> Robot:
    """Make an environment; ``settings`` are ``episode_length`` and arguments of its class (``backend``, …)."""
    env_id = f"brax:{name}"
    with quietly():
        known = load(env_id, ".envs")._envs
    limit, arguments = take_limit(settings, "episode_length", LIMIT)
    parameters = inspect.signature(known[name]).parameters.values()
    taken = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    check_names(arguments, [*taken, "n_frames", "episode_length"], env_id)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Brax System")  # see docs/environments.md
        return Robot(known[name](**arguments), limit)


def quietly() -> contextlib.AbstractContextManager:
    """Drop what an import prints: without Warp, which MuJoCo's MJX uses on GPUs only, it prints two lines."""
    return contextlib.redirect_stdout(io.StringIO())


class Robot(Described, JaxEnvironment):
    """A robot whose ``reset`` and ``step`` return a state, truncated after ``limit`` steps.

    The wrappers of its library reset every copy to its first initial state, and report a time limit as ``done``.
    """

    def __init__(self, env: Any, limit: int, model: str = "sys"):
        self.env, self.limit, self.model, self.default_params = env, limit, model, ()
        """``model`` names the attribute of ``env`` that has the masses, frictions, … of the robot."""
        # `proximo check` calls reset and step outside of a compiled program. Without jit this takes minutes.
        self._reset = jax.jit(lambda params, key: self._with_model(params).reset(key))
        self._step = jax.jit(lambda params, state, action: self._with_model(params).step(state, action))
        seen = jax.eval_shape(lambda: env.reset(jax.random.key_data(jax.random.key(0)))).obs
        parts = isinstance(seen, Mapping)
        self.observation_space = Dict({name: Box(x.shape) for name, x in seen.items()}) if parts else Box(seen.shape)
        self.action_space = Box((env.action_size,), -1.0, 1.0)

    def with_model_as_params(self) -> Robot:
        """This robot with its model as ``params``, which ``randomize`` changes. Otherwise, the model is compiled into the program."""
        robot = Robot(self.env, self.limit, self.model)
        robot.default_params = getattr(self.env, self.model)
        return robot

    def _with_model(self, params: Any) -> Any:
        if isinstance(params, tuple):
            return self.env
        env = copy.copy(self.env)
        setattr(env, self.model, params)
        return env

    def reset(self, key, params):
        state = self._reset(params, jax.random.key_data(key))
        return (state, jnp.int32(0)), state.obs

    def step(self, key, state, action, params):
        inner, steps = state
        inner, steps = self._step(params, inner, action), steps + 1
        terminated = inner.done > 0
        return (inner, steps), inner.obs, inner.reward, terminated, (steps >= self.limit) & ~terminated, {}
