"""``envpool:Pong-v5``: EnvPool, which steps environments in C++ threads with next-step autoreset."""

import warnings
from typing import Any

from proximo.envs.gymnasium.environment import GymnasiumEnvironment, from_vector
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.libraries import check_names, load

RESERVED = ("num_envs", "batch_size", "seed", "env_seed", "env_type", "reward_clip", "episodic_life")


class EnvPoolVector:
    """EnvPool as a Gymnasium ``VectorEnv``. EnvPool is seeded when it is made, so each reset makes new environments."""

    metadata = {"autoreset_mode": "NextStep"}  # noqa: RUF012

    def __init__(self, task: str, **arguments: Any):
        self._task, self._arguments, self._library = task, arguments, load(f"envpool:{task}")
        self._envs: Any = None
        with warnings.catch_warnings(action="ignore"):  # Gymnasium warns about bounds of float64, which it rounds
            spec = self._library.make_spec(task, **{key: value for key, value in arguments.items() if key != "num_envs"})
            self.single_observation_space = spec.gymnasium_observation_space
            self.single_action_space = spec.gymnasium_action_space

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        """Make environments with this seed and reset them."""
        self.close()
        with warnings.catch_warnings(action="ignore"):
            self._envs = self._library.make(self._task, env_type="gymnasium", seed=seed, **self._arguments)
            return self._envs.reset()

    def __getattr__(self, name: str) -> Any:
        """``step``, ``send`` and ``recv`` of the environments."""
        return getattr(self._envs, name)

    def close(self) -> None:
        """Stop the threads."""
        if self._envs is not None:
            self._envs.close()
        self._envs = None


def names() -> list[str]:
    """Return all tasks."""
    return sorted(load("envpool").list_all_envs())


def from_name(name: str, settings: dict[str, Any], preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """Make a task; ``settings`` are fields of its configuration."""
    env_id = f"envpool:{name}"
    with warnings.catch_warnings(action="ignore"):
        known = [key for key in load(env_id).make_spec(name).config._asdict() if key not in RESERVED]
    check_names(settings, known, env_id)

    def make(num_envs: int, num_threads: int = 0) -> EnvPoolVector:  # 0: it chooses the number of threads
        return EnvPoolVector(name, **{"num_envs": num_envs, "num_threads": num_threads, **settings})

    return from_vector(make, env_id, preprocessing, is_threaded=True)
