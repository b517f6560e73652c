"""``envpool:Pong-v5``: EnvPool's environments, threads of C++, used as they are (next-step autoreset)."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from proximo.envs.host.environment import HostEnvironment
from proximo.envs.host.gymnasium import from_vector
from proximo.envs.host.preprocessing import Preprocessing
from proximo.envs.settings import hold_names
from proximo.errors import EnvError, lacking, nearest
from proximo.users_code import users_code

FIXED = ("num_envs", "batch_size", "seed", "env_seed", "env_type", "reward_clip", "episodic_life")


class EnvPoolVector:
    """EnvPool in the part of Gymnasium's vector interface that a pool needs; it takes its seed when it is made."""

    def __init__(self, task: str, num_envs: int, settings: dict[str, Any]):
        self._task, self._num_envs, self._settings = task, num_envs, settings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of bounds that float32 rounds
            spec = _library(f"envpool:{task}").make_spec(task, **settings)
        self.single_observation_space, self.single_action_space = spec.gymnasium_observation_space, spec.gymnasium_action_space
        self.metadata = {"autoreset_mode": "NextStep"}
        self._envs: Any = None

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        """A new pool with this seed: an old one cannot be seeded again."""
        self.close()
        self._envs = _library(f"envpool:{self._task}").make(
            self._task, env_type="gymnasium", num_envs=self._num_envs, seed=seed, **self._settings
        )
        return self._envs.reset()

    def step(self, actions: Any) -> tuple[Any, ...]:
        """A step of all environments."""
        return self._envs.step(actions)

    def close(self) -> None:
        """End the threads."""
        if self._envs is not None:
            self._envs.close()
        self._envs = None


def _library(env_id: str) -> Any:
    try:
        return importlib.import_module("envpool")
    except ImportError:
        raise lacking(env_id, "envpool") from None


def from_task(task: str, settings: dict[str, Any], preprocessing: Preprocessing) -> HostEnvironment:
    """The task of that name; ``settings`` are fields of its configuration. Raises ``EnvError`` for an unknown one."""
    env_id = f"envpool:{task}"
    tasks = _library(env_id).list_all_envs()
    if task not in tasks:
        raise EnvError(f"EnvPool has no task {task!r}{nearest(task, tasks)}; `proximo envs envpool` lists them.")
    with users_code(f"Making {env_id}"):
        known = [name for name in _library(env_id).make_spec(task).config._asdict() if name not in FIXED]
    hold_names(settings, known, env_id)
    with users_code(f"Making {env_id}"):
        return from_vector(lambda num_envs: EnvPoolVector(task, num_envs, settings), env_id, preprocessing, may_mask=False)


def names() -> list[str]:
    """All tasks; none where EnvPool is not installed."""
    try:
        return sorted(_library("envpool").list_all_envs())
    except EnvError:
        return []
