"""``jumanji:Snake-v1``: jumanji, with time limits as truncations."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.envs.base import Described
from proximo.envs.libraries import check_names, load, take_limit
from proximo.spaces import ACTION_MASK, Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, from_any

NO_LIMIT = np.iinfo(np.int32).max


def names() -> list[str]:
    """Return the ids that can be trained: not Sokoban, which downloads its levels, MultiCVRP, whose mask does not cover
    its actions, and those in which each agent has its own reward."""
    return [
        "Game2048-v1", "GraphColoring-v1", "Minesweeper-v0", "RubiksCube-v0", "RubiksCube-partly-scrambled-v0", "Sudoku-v0",
        "Sudoku-very-easy-v0", "BinPack-v2", "FlatPack-v0", "JobShop-v0", "Knapsack-v1", "Tetris-v0", "Cleaner-v0", "MMST-v0", "CVRP-v1",
        "Maze-v0", "RobotWarehouse-v0", "Snake-v1", "TSP-v1", "PacMan-v1", "SlidingTilePuzzle-v0",
    ]  # fmt: skip


class JumanjiEnvironment(Described):
    """An environment of jumanji; ``settings`` are arguments of its class, such as ``time_limit``.

    Most report their time limit as a termination (``discount`` 0). Here they run without a limit, and this class truncates.
    If a mask has an entry for every combination of the action's components, the action becomes one Discrete action.
    """

    def __init__(self, name: str, settings: dict[str, Any]):
        env_id = f"jumanji:{name}"
        library = load(env_id)
        entry_point = library.registration._REGISTRY[name].entry_point
        check_names(settings, inspect.signature(library.registration.load(entry_point)).parameters, env_id)
        take_limit(settings, "time_limit", NO_LIMIT)
        self.env = library.make(name, **settings)
        # The specs are computed already; from now on only the end of an episode depends on the limit.
        self.limit, self.env.time_limit = getattr(self.env, "time_limit", NO_LIMIT), NO_LIMIT
        to_space = library.specs.jumanji_specs_to_gym_spaces
        self.action_space = from_any(to_space(self.env.action_spec), "action")
        self.default_params = ()
        seen: Any = from_any(to_space(self.env.observation_spec), "observation")  # a Dict: observations are named tuples
        self.parts: dict[str, Space] = dict(seen.spaces)
        if "step_count" in self.parts:  # two environments declare it as Discrete with thousands of values, one too few
            self.parts["step_count"] = Box((), 0, self.limit, "int32")
        self.nvec: tuple[int, ...] = ()
        mask = self.parts.pop(ACTION_MASK, None)
        if isinstance(mask, Box | MultiBinary):
            if isinstance(self.action_space, MultiDiscrete) and mask.shape == self.action_space.nvec:
                self.nvec, self.action_space = mask.shape, Discrete(mask.size)
            self.parts[ACTION_MASK] = MultiBinary((mask.size,))
        self.observation_space = Dict(self.parts)

    def reset(self, key: Key[Array, ""], params: PyTree) -> tuple[PyTree, PyTree]:
        state, timestep = self.env.reset(jax.random.key_data(key))
        return (state, jnp.int32(0)), self._seen(timestep.observation)

    def step(self, key: Key[Array, ""], state: PyTree, action: Array, params: PyTree) -> tuple:
        parts = jnp.stack(jnp.unravel_index(action, self.nvec)) if self.nvec else action
        inner, timestep = self.env.step(state[0], parts)
        steps, last = state[1] + 1, timestep.last()
        terminated = last & (timestep.discount == 0)
        truncated = (last | (steps >= self.limit)) & ~terminated
        return (inner, steps), self._seen(timestep.observation), timestep.reward, terminated, truncated, {}

    def _seen(self, observation: Any) -> dict[str, Any]:
        """Convert jumanji's named tuples to dictionaries."""
        seen = {name: _part(part, getattr(observation, name)) for name, part in self.parts.items()}
        return {name: x.reshape(-1) if name == ACTION_MASK else x for name, x in seen.items()}


from_name = JumanjiEnvironment


def _part(space: Space, observation: Any) -> Any:
    if not isinstance(space, Dict):
        return observation
    return {name: _part(part, getattr(observation, name)) for name, part in space.spaces}
