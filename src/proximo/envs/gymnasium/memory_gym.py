"""``memory-gym:MortarMayhem-Grid``: Memory Gym (Pleines et al. 2023), with its reset parameters as settings."""

import os
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from proximo.envs.gymnasium.environment import GymnasiumEnvironment, from_factory
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.libraries import check_names, load

DRIVERS = ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER")


def names() -> list[str]:
    """Return all tasks, without ``-v0``."""
    _register("memory-gym")
    return sorted(i.removesuffix("-v0") for i, spec in gym.registry.items() if str(spec.entry_point).startswith("memory_gym."))


def from_name(name: str, settings: dict[str, Any], preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """Make a task; ``settings`` are its reset parameters. One value may replace a list from which the task draws."""
    env_id = f"memory-gym:{name}"
    known = load_env_creator(str(gym.spec(f"{name}-v0").entry_point)).default_reset_parameters  # type: ignore[attr-defined]
    check_names(settings, known, env_id)
    lists = {key for key, default in known.items() if isinstance(default, list)}
    parameters = {k: [value] if k in lists and not isinstance(value, list) else value for k, value in settings.items()}
    return from_factory(partial(make_env, name, parameters), env_id, preprocessing)


def _register(env_id: str) -> None:
    """Import the library, which registers its ids. It opens a window and a sound device, here of dummy drivers."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    for driver in DRIVERS:
        os.environ.setdefault(driver, "dummy")
    load(env_id)


def make_env(name: str, parameters: dict[str, Any], render_mode: str | None = None) -> gym.Env:
    """Make one environment. Its pictures are Memory Gym's debug view, which is larger and shows hidden parts."""
    _register(f"memory-gym:{name}")
    render_mode = "debug_rgb_array" if render_mode == "rgb_array" else render_mode
    if render_mode == "human":  # this needs a real window
        for driver in DRIVERS:
            if os.environ.get(driver) == "dummy":
                del os.environ[driver]
    return MemoryGym(gym.make(f"{name}-v0", render_mode=render_mode, disable_env_checker=True), parameters)


class MemoryGym(gym.Wrapper):
    """Passes the reset parameters, and reports time limits as truncations; Memory Gym reports them as terminations."""

    def __init__(self, env: gym.Env, parameters: dict[str, Any]):
        super().__init__(env)
        self.parameters, self.steps = parameters, 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        result = self.env.reset(seed=seed, options={**self.parameters, **(options or {})} or None)
        self._show()
        return result

    def step(self, action):
        """Take one step. The last step of Mortar Mayhem is a termination: the time for its commands is part of the task."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        self._show()
        task: Any = self.env.unwrapped
        limit, kind = getattr(task, "max_episode_steps", -1), type(task).__name__
        has_limit = "Mayhem" not in kind or "Endless" in kind
        if terminated and has_limit and self.steps == limit and not info.get("success"):
            terminated, truncated = False, True
        if "success" in info:  # the endless tasks report none
            # Mortar Mayhem reports a success even if the agent disobeyed the last command.
            obeyed = not hasattr(task, "_target_pos") or task.normalized_agent_position == task._target_pos
            info = {**info, "success": bool(info["success"]) and obeyed}
        return observation, reward, terminated, truncated, info

    def _show(self) -> None:
        """Draw the window after each step, as Gymnasium's environments do by themselves."""
        if self.env.render_mode == "human":
            self.env.render()
