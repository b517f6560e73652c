"""``jumanji:Snake-v1``: jumanji, with time limits as truncations."""

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp

from proximo.envs.libraries import NO_LIMIT, Described, check_names, load, take_limit
from proximo.envs.protocol import JaxEnvironment
from proximo.spaces import ACTION_MASK, Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, from_any, leaves, unflatten


def names() -> list[str]:
    """Return the ids that can be trained: not Sokoban, which downloads its levels, MultiCVRP, whose mask does not cover
    its actions, and those in which each agent has its own reward."""
    return [
        "Game2048-v1", "GraphColoring-v1", "Minesweeper-v0", "RubiksCube-v0", "RubiksCube-partly-scrambled-v0", "Sudoku-v0",
        "Sudoku-very-easy-v0", "BinPack-v2", "FlatPack-v0", "JobShop-v0", "Knapsack-v1", "Tetris-v0", "Cleaner-v0", "MMST-v0", "CVRP-v1",
        "Maze-v0", "RobotWarehouse-v0", "Snake-v1", "TSP-v1", "PacMan-v1", "SlidingTilePuzzle-v0",
    ]  # fmt: skip


class JumanjiEnvironment(Described, JaxEnvironment):
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
        parts: dict[str, Space] = dict(seen.spaces)
        if "step_count" in parts:  # two environments declare it as Discrete with thousands of values, one too few
            parts["step_count"] = Box((), 0, self.limit, "int32")
        self.nvec: tuple[int, ...] = ()
        mask = parts.pop(ACTION_MASK, None)
        if isinstance(mask, Box | MultiBinary):
            if isinstance(self.action_space, MultiDiscrete) and mask.shape == self.action_space.nvec:
                self.nvec, self.action_space = mask.shape, Discrete(mask.size)
            parts[ACTION_MASK] = MultiBinary((mask.size,))
        self.observation_space = Dict(parts)

    def reset(self, key, params):
        state, timestep = self.env.reset(jax.random.key_data(key))
        return (state, jnp.int32(0)), self._seen(timestep.observation)

    def step(self, key, state, action, params):
        parts = jnp.stack(jnp.unravel_index(action, self.nvec)) if self.nvec else action
        inner, timestep = self.env.step(state[0], parts)
        steps, last = state[1] + 1, timestep.last()
        terminated = last & (timestep.discount == 0)
        truncated = (last | (steps >= self.limit)) & ~terminated
        return (inner, steps), self._seen(timestep.observation), timestep.reward, terminated, truncated, {}

    def _seen(self, observation: Any) -> Any:
        """Convert jumanji's named tuples to dictionaries, with a flat mask."""
        space: Any = self.observation_space
        parts = (functools.reduce(getattr, map(str, leaf.path), observation).reshape(leaf.shape) for leaf in leaves(space))
        return unflatten(space, parts)


from_name = JumanjiEnvironment
