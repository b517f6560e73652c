"""``memory-gym:MortarMayhem-Grid``: Memory Gym (Pleines et al. 2023), its reset parameters as settings."""

from __future__ import annotations

import importlib
import os
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from proximo.envs.host.environment import HostEnvironment
from proximo.envs.host.gymnasium import from_factory, making
from proximo.envs.host.preprocessing import Preprocessing
from proximo.envs.settings import hold_names
from proximo.errors import MEMORY_GYM, EnvError, nearest


def from_name(name: str, settings: dict[str, Any], preprocessing: Preprocessing) -> HostEnvironment:
    """``NAME-v0`` of Memory Gym. Raises ``EnvError`` where it is not installed or has no such task, ``ConfigError`` for a reset
    parameter that the task does not have."""
    env_id = f"memory-gym:{name}"
    known = names()
    if not known:
        raise EnvError(f"{env_id} needs Memory Gym: {MEMORY_GYM} (its own pins are for an older Gymnasium).")
    if name not in known:
        raise EnvError(f"Memory Gym has no task {name!r}{nearest(name, known)}; it has {', '.join(known)}.")
    make = partial(make_env, name, _parameters(name, settings, env_id))
    with making(env_id):
        return from_factory(make, env_id, preprocessing)


def names() -> list[str]:
    """All tasks, without ``-v0``; none where Memory Gym is not installed."""
    try:
        _registered()
    except ImportError:
        return []
    return sorted(i.removesuffix("-v0") for i, spec in gym.registry.items() if str(spec.entry_point).startswith("memory_gym."))


def _registered() -> None:
    """Import the library, which registers its ids and opens a window and a sound device: both without a screen."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(name, "dummy")
    importlib.import_module("memory_gym")


def _parameters(name: str, given: dict[str, Any], env_id: str) -> dict[str, Any]:
    """``given`` as the task takes it: where it takes a list to draw from, a single value is a list of one."""
    creator = load_env_creator(str(gym.spec(f"{name}-v0").entry_point))
    known = creator.default_reset_parameters  # type: ignore[attr-defined]
    hold_names(given, known, env_id)
    return {
        key: [value] if isinstance(known[key], list) and not isinstance(value, list) else value for key, value in given.items()
    }


def make_env(name: str, parameters: dict[str, Any], render_mode: str | None = None) -> gym.Env:
    """One environment, in this process. Where a picture is asked for, it is the one for people: larger, with the goal marked and
    what the agent does not see."""
    _registered()
    render_mode = "debug_rgb_array" if render_mode == "rgb_array" else render_mode
    if render_mode == "human":  # a window after all
        for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
            if os.environ.get(driver) == "dummy":
                del os.environ[driver]
    return MemoryGym(gym.make(f"{name}-v0", render_mode=render_mode, disable_env_checker=True), parameters)


class MemoryGym(gym.Wrapper):
    """Resets with the parameters, and tells a limit of time from an end: Memory Gym reports both as terminations."""

    def __init__(self, env: gym.Env, parameters: dict[str, Any]):
        super().__init__(env)
        self.parameters, self.steps = parameters, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A level of ``seed``, by the parameters."""
        self.steps = 0
        result = self.env.reset(seed=seed, options={**self.parameters, **(options or {})} or None)
        self._show()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Of the environment itself. In Mortar Mayhem the last step is when all commands were to be done, no limit of time."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        self._show()
        limit = getattr(self.env.unwrapped, "max_episode_steps", -1)
        timed = "Mayhem" not in type(self.env.unwrapped).__name__ or "Endless" in type(self.env.unwrapped).__name__
        if terminated and timed and self.steps == limit and not info.get("success"):
            terminated, truncated = False, True
        return observation, reward, terminated, truncated, {**info, **_success(info)}

    def _show(self) -> None:
        """In a window Memory Gym draws only when it is told to, where Gymnasium's environments do so by themselves."""
        if self.env.render_mode == "human":
            self.env.render()


def _success(info: dict[str, Any]) -> dict[str, bool]:
    """What tells of a success in the last step: the endless tasks tell nothing."""
    return {"success": bool(info["success"])} if "success" in info else {}
