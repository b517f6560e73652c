"""``minigrid:MemoryS9``: MiniGrid's tasks as a policy reads them, and their levels parted into those to train on and those to
be judged by."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from typing import Any

import gymnasium as gym
import numpy as np

from proximo.envs.host.environment import HostEnvironment
from proximo.envs.host.gymnasium import from_factory, making
from proximo.envs.host.preprocessing import Preprocessing
from proximo.envs.levels import PARTS
from proximo.envs.settings import hold_names
from proximo.errors import ConfigError, EnvError, lacking, nearest

TILE = 28
HELD_OUT_OF = 4
"""One level in so many is held out; in the memory tasks, one start along the hallway."""
MOST_DRAWS = 1000
"""Levels that are drawn in search of one of the part that is played."""
MOST_VIEWS, MOST_PICTURES = 50_000, 1_000
"""That a process keeps: a view's key is some hundred bytes, a picture 21 kB or more."""


@dataclass(frozen=True)
class MiniGridSettings:
    """``env_settings`` of these environments."""

    view: int = 3
    """Cells that the agent sees, along each side: odd."""
    image: bool = False
    """A picture of the cells that it sees, ``28 view`` pixels along each side; else what is in them, one-hot."""
    actions: int = 0
    """The first so many of MiniGrid's seven actions; 0: left, right and forward in the memory tasks, else all."""
    levels: str = "all"
    """Which levels are played, by what is in them: "train" and "held_out" have none in common."""
    limit_ends: bool = False
    """The limit of steps is an end of the task (termination), not an interruption of it (truncation). MiniGrid's reward for a success
    falls with every step, to a tenth at the limit: nothing is left to win behind it. The value of the last view, which does not show
    the time, would say otherwise, and an agent that wanders until the limit would be paid for it."""


def from_name(name: str, settings: dict[str, Any], preprocessing: Preprocessing) -> HostEnvironment:
    """``MiniGrid-NAME-v0``. Raises ``EnvError`` where MiniGrid is not installed or has no such task."""
    env_id = f"minigrid:{name}"
    known = names()
    if not known:
        raise lacking(env_id, "minigrid")
    if name not in known:
        raise EnvError(f"MiniGrid has no task {name!r}{nearest(name, known)}; `proximo envs minigrid` lists them.")
    make = partial(make_env, name, _settings(settings, env_id, name))
    with making(env_id):
        return from_factory(make, env_id, preprocessing)


def names() -> list[str]:
    """All tasks, without ``MiniGrid-`` and ``-v0``; none where MiniGrid is not installed."""
    try:
        import minigrid  # noqa: F401
    except ImportError:
        return []
    ids = [i for i in gym.registry if i.startswith("MiniGrid-") and i.endswith("-v0")]
    return sorted(i.removeprefix("MiniGrid-").removesuffix("-v0") for i in ids)


def _settings(given: dict[str, Any], env_id: str, name: str) -> MiniGridSettings:
    known = {f.name: f for f in fields(MiniGridSettings)}
    hold_names(given, known, env_id)
    for key, value in given.items():
        kind = type(known[key].default)
        if type(value) is not kind:
            raise ConfigError(f"env_settings: {key} = {value!r}: expected {kind.__name__}.")
    settings = MiniGridSettings(**{"actions": 3 if name.startswith("Memory") else 7, **given})
    if settings.view < 3 or settings.view % 2 == 0:
        raise ConfigError(f"env_settings: view = {settings.view}: expected an odd number of cells, 3 or more.")
    if not 1 <= settings.actions <= 7:
        raise ConfigError(f"env_settings: actions = {settings.actions}: expected 1 … 7.")
    if settings.levels not in PARTS:
        raise ConfigError(
            f"env_settings: levels = {settings.levels!r}{nearest(settings.levels, PARTS)}: expected {', '.join(PARTS)}; "
            "a range of seeds is the setting levels, as --levels 0:100."
        )
    return settings


def make_env(name: str, settings: MiniGridSettings, render_mode: str | None = None) -> gym.Env:
    """One environment, in this process. What is rendered is the whole level, with the cells that the agent sees brightened."""
    import minigrid  # noqa: F401  (registers the ids)
    from minigrid.wrappers import RGBImgPartialObsWrapper

    env = gym.make(f"MiniGrid-{name}-v0", agent_view_size=settings.view, render_mode=render_mode, disable_env_checker=True)
    if settings.levels != "all":
        env = Levels(env, held_out=settings.levels == "held_out")
    if name.startswith("Memory") and settings.actions <= 3:
        look_once(env.unwrapped)
    env = RGBImgPartialObsWrapper(env, tile_size=TILE) if settings.image else env
    return Seen(env, settings)


def layout(env: Any) -> bytes:
    """What stands in every cell, as a key: ``env.hash()`` takes longer than a view."""
    return bytes(chain.from_iterable(NOTHING if cell is None else cell.encode() for cell in env.grid.grid))


NOTHING = (0, 0, 0)
_cells: dict[Any, np.ndarray] = {}
_pictures: dict[bytes, np.ndarray] = {}


def look_once(env: Any) -> None:
    """Makes ``env`` compute each view once for all environments of this process, where nothing but the agent moves: turning
    and hiding cells is most of MiniGrid's step. The picture depends on the cells that are seen alone."""
    generate, draw, reset = env.gen_obs, env.get_frame, env.reset
    level: bytes | None = None

    def begin(**arguments: Any) -> Any:
        nonlocal level
        level = None
        return reset(**arguments)

    def look() -> dict[str, Any]:
        nonlocal level
        level = level or layout(env)
        key = (level, *env.agent_pos, env.agent_dir, env.agent_view_size)
        cells = _cells.get(key)
        if cells is None:
            cells = generate()["image"]
            _keep(_cells, MOST_VIEWS, key, cells)
        return {"image": cells, "direction": env.agent_dir, "mission": env.mission}

    def frame(highlight: bool = True, tile_size: int = TILE, agent_pov: bool = False) -> np.ndarray:
        if not agent_pov or tile_size != TILE:
            return draw(highlight, tile_size, agent_pov)
        key = look()["image"].tobytes()
        picture = _pictures.get(key)
        if picture is None:
            picture = draw(highlight, tile_size, agent_pov)
            _keep(_pictures, MOST_PICTURES, key, picture)
        return picture

    env.gen_obs, env.get_frame, env.reset = look, frame, begin


def _keep(store: dict[Any, np.ndarray], most: int, key: Any, view: np.ndarray) -> None:
    if len(store) >= most:
        store.clear()
    view.flags.writeable = False
    store[key] = view


class Levels(gym.Wrapper):
    """Only levels of one part: others are drawn again."""

    def __init__(self, env: gym.Env, held_out: bool):
        super().__init__(env)
        self.held_out = held_out

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The first of the levels from ``seed`` on that belongs to the part."""
        result = self.env.reset(seed=seed, options=options)
        for _ in range(MOST_DRAWS):
            if is_held_out(self.env.unwrapped) == self.held_out:
                return result
            result = self.env.reset()
        part = "held_out" if self.held_out else "train"
        raise EnvError(
            f"levels = {part}: none of {MOST_DRAWS} levels of this task belongs to that part: it has too few, use all."
        )


def is_held_out(env: Any) -> bool:
    """Whether the level as it stands after a reset is one of those held out: by the hash of its grid and of where the agent is.

    In the memory tasks by the start alone: those in every fourth column, so that the four levels which differ in their objects
    stay together. Were some of them missing in training, their start would tell the object or the side, and a policy that has
    learned this instead of looking would be right in training and bound to fail on those held out.
    """
    from minigrid.envs.memory import MemoryEnv

    number = int(env.agent_pos[0]) if isinstance(env, MemoryEnv) else int(env.hash(size=16), 16)
    return number % HELD_OUT_OF == 0


class Seen(gym.Wrapper):
    """The picture or the cells alone, and the actions that are of use."""

    def __init__(self, env: gym.Env, settings: MiniGridSettings):
        super().__init__(env)
        self.image, self.limit_ends = settings.image, settings.limit_ends
        self.action_space = gym.spaces.Discrete(settings.actions)
        if self.image:
            self.observation_space = env.observation_space["image"]  # pyright: ignore[reportIndexIssue]
        else:
            from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX

            # The state of the agent's own cell is a direction, of which there are four.
            counts = (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), max(len(STATE_TO_IDX), 4))
            self.observation_space = gym.spaces.MultiDiscrete(np.tile(counts, (settings.view, settings.view, 1)))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Of the environment itself."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation["image"], info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Of the environment itself, which gives a reward where it was solved and never else."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info = {**info, "success": float(reward) > 0}
        if truncated and self.limit_ends:
            terminated, truncated = True, False
        return observation["image"], reward, terminated, truncated, info
