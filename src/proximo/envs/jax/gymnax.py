"""gymnax: its ``step_env`` and its own truncation test, not its autoreset (which resets at every step)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from proximo.envs.settings import replace_params
from proximo.errors import EnvError, nearest
from proximo.spaces import from_any

# Fetches its data from the internet when it is made.
DOWNLOADS = ("MNISTBandit-bsuite",)


def names() -> list[str]:
    """The ids that gymnax has registered."""
    import gymnax

    return list(gymnax.registered_envs)


class GymnaxEnvironment:
    """An environment of gymnax in proximo's protocol; ``settings`` are fields of its parameters."""

    def __init__(self, name: str, settings: dict[str, Any]):
        import gymnax

        if name not in gymnax.registered_envs:
            raise EnvError(
                f"gymnax has no environment {name!r}{nearest(name, gymnax.registered_envs)}; `proximo envs` lists them."
            )
        try:
            self.env, params = gymnax.make(name)
        except Exception as error:
            raise EnvError(f"gymnax could not make {name!r}: {type(error).__name__}: {error}") from error
        self.default_params = replace_params(params, settings, f"gymnax:{name}")
        self.observation_space = from_any(self.env.observation_space(params), "observation")
        self.action_space = from_any(self.env.action_space(params), "action")

    def reset(self, key: Key[Array, ""], params: PyTree) -> tuple[PyTree, PyTree]:
        """gymnax gives the observation first."""
        observation, state = self.env.reset_env(key, params)
        return state, observation

    def step(self, key: Key[Array, ""], state: PyTree, action: Array, params: PyTree) -> tuple:
        """One step; a step that terminates is not truncated, even at the time limit."""
        observation, state, reward, terminated, info = self.env.step_env(key, state, action, params)
        truncated = jnp.asarray(self.env.is_truncated(state, params)) & ~jnp.asarray(terminated)
        return state, observation, reward, terminated, truncated, info
