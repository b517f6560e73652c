"""``craftax:Craftax-Symbolic-v1``: Craftax and Craftax-Classic, without autoreset."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.envs.jax import libraries
from proximo.envs.settings import replace_params
from proximo.spaces import Box, Space, from_any
from proximo.users_code import users_code

NAMES = ("Craftax-Symbolic-v1", "Craftax-Pixels-v1", "Craftax-Classic-Symbolic-v1", "Craftax-Classic-Pixels-v1")
NO_LIMIT = np.iinfo(np.int32).max


def names() -> list[str]:
    """What Craftax has; none where it is not installed."""
    return libraries.listed("craftax", NAMES)


def from_name(name: str, settings: dict[str, Any]) -> CraftaxEnvironment:
    """Craftax's environment; ``settings`` are fields of its parameters."""
    return CraftaxEnvironment(name, settings)


class CraftaxEnvironment:
    """An environment of Craftax in proximo's protocol. Pictures are bytes, where Craftax gives numbers from 0 to 1."""

    def __init__(self, name: str, settings: dict[str, Any]):
        env_id = f"craftax:{name}"
        library = libraries.load("craftax.craftax_env", env_id, "craftax")
        libraries.hold_known(name, NAMES, "craftax")
        with users_code(f"Making {env_id}"):
            self.env = library.make_craftax_env_from_name(name, auto_reset=False)
        self.default_params = replace_params(self.env.default_params, settings, env_id)
        space = from_any(self.env.observation_space(self.default_params), "observation")
        assert isinstance(space, Box)
        self.is_picture = len(space.shape) == 3
        self.observation_space: Space = Box(space.shape, 0.0, 255.0, "uint8") if self.is_picture else space
        self.action_space = from_any(self.env.action_space(self.default_params), "action")

    def reset(self, key: Key[Array, ""], params: PyTree) -> tuple[PyTree, Array]:
        """Craftax gives the observation first."""
        observation, state = self.env.reset(libraries.legacy(key), params)
        return state, self._seen(observation)

    def step(self, key: Key[Array, ""], state: PyTree, action: Array, params: PyTree) -> tuple:
        """One step. Craftax tells one end, whose reasons are parted here: what ends without a limit is a termination."""
        observation, state, reward, done, _ = self.env.step(libraries.legacy(key), state, action, params)
        terminated = jnp.asarray(self.env.is_terminal(state, params.replace(max_timesteps=NO_LIMIT)))
        return state, self._seen(observation), reward, terminated, jnp.asarray(done) & ~terminated, {}

    def _seen(self, observation: Array) -> Array:
        return jnp.round(255.0 * observation).astype(jnp.uint8) if self.is_picture else observation
