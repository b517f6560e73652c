"""``envpool:Pong-v5``: EnvPool, which steps environments in C++ threads with next-step autoreset."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

from proximo.custom_code import custom_code_errors
from proximo.envs.env_settings import check_names
from proximo.envs.gymnasium.construction import AUTO_THREADS, from_vector
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.libraries import check_known, not_installed
from proximo.errors import EnvError

RESERVED = ("num_envs", "batch_size", "seed", "env_seed", "env_type", "reward_clip", "episodic_life")


@contextlib.contextmanager
def _float64_bounds() -> Iterator[None]:
    """Ignore Gymnasium's warnings about rounded bounds. EnvPool makes its spaces with float64 bounds, also when it resets."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*precision lowered by casting")
        yield


class EnvPoolVector:
    """EnvPool as a Gymnasium ``VectorEnv``. EnvPool is seeded when it is made, so each reset makes new environments."""

    def __init__(self, task: str, num_envs: int, settings: dict[str, Any]):
        self._task, self._num_envs, self._settings = task, num_envs, settings
        with _float64_bounds():
            spec = _library(f"envpool:{task}").make_spec(task, **settings)
            self.single_observation_space, self.single_action_space = (
                spec.gymnasium_observation_space,
                spec.gymnasium_action_space,
            )
        self.metadata = {"autoreset_mode": "NextStep"}
        self._envs: Any = None

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        """Make environments with this seed and reset them."""
        self.close()
        with _float64_bounds():
            self._envs = _library(f"envpool:{self._task}").make(
                self._task, env_type="gymnasium", num_envs=self._num_envs, seed=seed, **self._settings
            )
            return self._envs.reset()

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Step all environments."""
        return self._envs.step(actions)

    def send(self, actions: Any) -> None:
        """Begin a step of all environments."""
        self._envs.send(actions)

    def recv(self) -> tuple[Any, ...]:
        """Wait for the end of the step, and return what ``step`` returns."""
        return self._envs.recv()

    def close(self) -> None:
        """Stop the threads."""
        if self._envs is not None:
            self._envs.close()
        self._envs = None


def _library(env_id: str) -> Any:
    try:
        return importlib.import_module("envpool")
    except ImportError:
        raise not_installed(env_id) from None


def from_name(name: str, settings: dict[str, Any], preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """Make a task; ``settings`` are fields of its configuration."""
    env_id = f"envpool:{name}"
    check_known(env_id, _library(env_id).list_all_envs())
    with custom_code_errors(f"Making {env_id}"), _float64_bounds():
        known = [key for key in _library(env_id).make_spec(name).config._asdict() if key not in RESERVED]
    check_names(settings, known, env_id)

    def make(num_threads: int, num_envs: int) -> EnvPoolVector:
        return EnvPoolVector(name, num_envs, {"num_threads": num_threads, **settings})

    with custom_code_errors(f"Making {env_id}"):
        return from_vector(partial(make, AUTO_THREADS), env_id, preprocessing, may_mask=False, make_threaded=make)


def names() -> list[str]:
    """Return all tasks; empty if EnvPool is not installed."""
    try:
        return sorted(_library("envpool").list_all_envs())
    except EnvError:
        return []
