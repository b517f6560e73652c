"""``craftax:Craftax-Symbolic-v1``: Craftax and Craftax-Classic, without autoreset."""

import importlib
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from proximo.envs.libraries import NO_LIMIT, Described, check_type, load, replace_params
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import ConfigError
from proximo.spaces import Box, Dict, Space, from_any


def names() -> list[str]:
    """Return all environments."""
    return ["Craftax-Symbolic-v1", "Craftax-Pixels-v1", "Craftax-Classic-Symbolic-v1", "Craftax-Classic-Pixels-v1"]


class CraftaxEnvironment(Described, JaxEnvironment):
    """An environment of Craftax; ``settings`` are fields of its parameters, and ``separate_map``: a symbolic observation is
    then a dict of the map (rows, columns, channels), which a CNN can read, and the inventory; Craftax concatenates them.
    Images are uint8; Craftax returns floats of 0 … 1.
    """

    def __init__(self, name: str, settings: dict[str, Any]):
        env_id, settings, self.is_picture = f"craftax:{name}", dict(settings), "Pixels" in name
        self.env = load(env_id, ".craftax_env").make_craftax_env_from_name(name, auto_reset=False)
        separate_map = settings.pop("separate_map", False)
        check_type("separate_map", separate_map, False)
        self.default_params = replace_params(self.env.default_params, settings, env_id)
        space: Any = from_any(self.env.observation_space(self.default_params), "observation")
        self.map_shape = ()
        self.observation_space: Space = Box(space.shape, 0.0, 255.0, "uint8") if self.is_picture else space
        if separate_map:
            if self.is_picture:
                raise ConfigError(f"env_settings: {env_id} has no separate_map: its observations are images.")
            self.map_shape = importlib.import_module(type(self.env).__module__).get_map_obs_shape()
            inventory = Box((space.size - math.prod(self.map_shape),), space.low, space.high)
            self.observation_space = Dict({"inventory": inventory, "map": Box(self.map_shape, 0.0, 1.0)})
        self.action_space = from_any(self.env.action_space(self.default_params), "action")

    def reset(self, key, params):
        observation, state = self.env.reset(jax.random.key_data(key), params)
        return state, self._converted(observation)

    def step(self, key, state, action, params):
        observation, state, reward, done, _ = self.env.step(jax.random.key_data(key), state, action, params)
        # Craftax reports a single ``done``: an end that also occurs without the time limit is a termination.
        terminated = jnp.asarray(self.env.is_terminal(state, params.replace(max_timesteps=NO_LIMIT)))
        return state, self._converted(observation), reward, terminated, jnp.asarray(done) & ~terminated, {}

    def _converted(self, observation: Array) -> PyTree:
        if self.is_picture:
            return jnp.round(255.0 * observation).astype(jnp.uint8)
        if not self.map_shape:
            return observation
        cells, inventory = jnp.split(observation, [math.prod(self.map_shape)])
        return {"inventory": inventory, "map": cells.reshape(self.map_shape)}


from_name = CraftaxEnvironment
