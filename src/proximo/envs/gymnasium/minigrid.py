"""``minigrid:MemoryS9``: MiniGrid with observations for a policy, and levels for training and held-out levels."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import gymnasium as gym
import numpy as np

from proximo.envs.gymnasium.environment import GymnasiumEnvironment, from_factory
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.level_seeds import PARTS
from proximo.envs.libraries import load, replace_params
from proximo.errors import ConfigError, EnvError

TILE = 28
"""Pixels of a cell, along each side."""
HELD_OUT_OF = 4
"""One of this many levels is held out; in the memory tasks, one of this many start positions."""
NEED_MISSION = ("BabyAI-", "Fetch-", "GoTo", "PutNear-")
"""Beginnings of the names of tasks in which the mission, a text, says what to do."""
MAX_DRAWS = 1000
"""Maximum number of draws until a level belongs to the requested part."""
MAX_VIEWS, MAX_PICTURES = 50_000, 1_000
"""Cached views and pictures in a process, at most. A view takes a few hundred bytes, a picture 21 kB."""


@dataclass(frozen=True)
class MiniGridSettings:
    """``env_settings`` of these environments, which docs/environments.md explains."""

    view: int = 3
    image: bool = False
    actions: int = 0
    levels: str = "all"
    limit_ends: bool = False
    """MiniGrid's reward for a success decreases with time, to a tenth at the limit, so the limit is part of the task. The observation
    does not show the time: the value of a truncated state would reward an agent that wanders until the limit."""
    new_cell_bonus: float = 0.0


def from_name(name: str, settings: dict[str, Any], preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """Make ``MiniGrid-NAME-v0``; ``MiniGrid-NAME`` if the name has a version; a level of BabyAI if it begins with ``BabyAI-``."""
    env_id = f"minigrid:{name}"
    given = replace_params(MiniGridSettings(actions=3 if name.startswith("Memory") else 7), settings, env_id)
    for setting, fits, expected in (
        ("view", given.view >= 3 and given.view % 2 == 1, "an odd number of cells, 3 or more"),
        ("actions", 1 <= given.actions <= 7, "1 … 7"),
        ("new_cell_bonus", given.new_cell_bonus >= 0, "0 or more"),
        ("levels", given.levels in PARTS, f"{', '.join(PARTS)}; for a range of seeds, use the setting --levels 0:100"),
    ):
        if not fits:
            raise ConfigError(f"env_settings: {setting} = {getattr(given, setting)!r}: expected {expected}.")
    env = from_factory(partial(make_env, name, given), env_id, preprocessing)
    if not name.startswith(NEED_MISSION):
        return env
    dropped = "the policy does not observe the mission, a text that describes the goal, because proximo has no encoder of text."
    return replace(env, warnings=(f"{env_id}: {dropped}",))


def names() -> list[str]:
    """Return all tasks, without ``MiniGrid-``, and without the version 0."""
    load("minigrid")  # it registers the ids
    return sorted(i.removeprefix("MiniGrid-").removesuffix("-v0") for i in gym.registry if i.startswith(("MiniGrid-", "BabyAI-")))


def make_env(name: str, settings: MiniGridSettings, render_mode: str | None = None) -> gym.Env:
    """Make one environment. It renders the whole level, with the cells that the agent sees highlighted."""
    from minigrid.envs.babyai.core import roomgrid_level
    from minigrid.wrappers import RGBImgPartialObsWrapper

    load("minigrid")  # a worker has not imported it, and it registers the ids
    roomgrid_level.print = lambda *_: None  # pyright: ignore[reportAttributeAccessIssue]  # it reports levels that it draws again
    env_id = name if name.startswith("BabyAI-") else f"MiniGrid-{name}"
    env_id = env_id if env_id in gym.registry else f"{env_id}-v0"
    # The user has chosen the version.
    warnings.filterwarnings("ignore", f".*{env_id} is out of date", DeprecationWarning)
    env = gym.make(env_id, agent_view_size=settings.view, render_mode=render_mode, disable_env_checker=True)
    if name.startswith("Memory") and settings.actions <= 3:
        cache_views(env.unwrapped)
    env = RGBImgPartialObsWrapper(env, tile_size=TILE) if settings.image else env
    return MiniGridTask(env, settings)


_cells: dict[Any, np.ndarray] = {}
_pictures: dict[Any, np.ndarray] = {}


def cache_views(env: Any) -> None:
    """Make ``env`` compute each view once for all environments of this process.

    Use this only for tasks in which nothing but the agent moves. Views take most of the time of a step in MiniGrid.
    """
    generate, draw, reset, level = env.gen_obs, env.get_frame, env.reset, b""

    def reset_level(**arguments: Any) -> Any:
        nonlocal level
        level = b""
        return reset(**arguments)

    def cached_view() -> dict[str, Any]:
        nonlocal level  # all cells; env.hash() takes longer than computing a view
        level = level or bytes(chain.from_iterable((0, 0, 0) if cell is None else cell.encode() for cell in env.grid.grid))
        key = (level, *env.agent_pos, env.agent_dir, env.agent_view_size)
        cells = _cached(_cells, MAX_VIEWS, key, lambda: generate()["image"])
        return {"image": cells, "direction": env.agent_dir, "mission": env.mission}

    def cached_picture(highlight: bool = True, tile_size: int = TILE, agent_pov: bool = False) -> np.ndarray:
        if not agent_pov or tile_size != TILE:
            return draw(highlight, tile_size, agent_pov)
        return _cached(_pictures, MAX_PICTURES, cached_view()["image"].tobytes(), lambda: draw(highlight, tile_size, agent_pov))

    env.gen_obs, env.get_frame, env.reset = cached_view, cached_picture, reset_level


def _cached(store: dict[Any, np.ndarray], most: int, key: Any, compute: Callable[[], np.ndarray]) -> np.ndarray:
    if key not in store:
        if len(store) >= most:
            store.clear()
        store[key] = compute()
        store[key].flags.writeable = False
    return store[key]


def is_held_out(env: Any) -> bool:
    """Whether the current level, just after a reset, is held out.

    It depends on MiniGrid's hash of the grid and of the agent's position and direction. In the memory tasks it depends only on the start
    column. The four levels with the same start then belong to one part; otherwise a policy could learn which objects are missing instead of
    using its memory.
    """
    is_memory = type(env).__module__ == "minigrid.envs.memory"
    return (int(env.agent_pos[0]) if is_memory else int(env.hash(size=16), 16)) % HELD_OUT_OF == 0


class MiniGridTask(gym.Wrapper):
    """A task as ``settings`` describe it: its levels, its observation (the picture or the cells), its actions and its bonus."""

    def __init__(self, env: gym.Env, settings: MiniGridSettings):
        super().__init__(env)
        self.settings = settings
        self.action_space = gym.spaces.Discrete(settings.actions)
        if settings.image:
            self.observation_space = env.observation_space["image"]  # pyright: ignore[reportIndexIssue]
        else:
            from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX

            # The state of the agent's cell is a direction, of which there are four.
            counts = (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), max(len(STATE_TO_IDX), 4))
            self.observation_space = gym.spaces.MultiDiscrete(np.tile(counts, (settings.view, settings.view, 1)))

    def reset(self, *, seed=None, options=None):
        """Start a level of the chosen part; other levels are drawn again."""
        observation, info = self.env.reset(seed=seed, options=options)
        part, draws = self.settings.levels, 0
        while part != "all" and is_held_out(self.env.unwrapped) != (part == "held_out"):
            if (draws := draws + 1) == MAX_DRAWS:
                raise EnvError(
                    f"levels = {part}: none of {MAX_DRAWS} levels of this task belongs to this part: the task has too few levels, use all."
                )
            observation, info = self.env.reset()
        self._entered = {self._cell()}
        return observation["image"], info

    def step(self, action):
        """Take one step. A positive reward at the end is a success, because MiniGrid only rewards solutions."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info = {**info, "success": float(reward) > 0}
        if truncated and self.settings.limit_ends:
            terminated, truncated = True, False
        if self.settings.new_cell_bonus and (cell := self._cell()) not in self._entered:
            self._entered.add(cell)
            reward = float(reward) + self.settings.new_cell_bonus
        return observation["image"], reward, terminated, truncated, info

    def _cell(self) -> tuple[Any, ...]:
        return tuple(self.env.unwrapped.agent_pos)  # pyright: ignore[reportAttributeAccessIssue]
