"""The environment and the settings of an agent: made from an id or an object, and compared with another environment."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from proximo.collect.environment import check_settings, environment, preprocessing_of
from proximo.config import Config, override
from proximo.config.loading import make_config
from proximo.config.schema import RUN_DIRECTORY
from proximo.envs.custom import from_object, is_vectorized
from proximo.envs.protocol import Environment
from proximo.errors import ConfigError
from proximo.spaces import Box, Space, from_any, tree


def make_environment(env: Any, settings: Mapping[str, Any], preset: bool) -> tuple[Environment, Config]:
    """The environment of an id or an object, and the settings for it. Raises a ``ConfigError`` for settings of run directories."""
    for name in settings:
        if name in RUN_DIRECTORY:
            raise ConfigError(
                f"{name} is a setting of run directories: use proximo.train, because a PPO object writes no files by itself."
            )
    if isinstance(env, str):
        config = make_config(env, settings, preset=preset)
        return environment(config), config
    settings = dict(settings)
    if is_vectorized(type(env)) and settings.setdefault("num_envs", env.num_envs) != env.num_envs:
        raise ConfigError(
            f"num_envs = {settings['num_envs']}, but the vector environment has {env.num_envs}: leave out num_envs."
        )
    config = make_config("<>", settings, preset=False)
    env_id, made = from_object(env, config.env.env_settings, preprocessing_of(config))
    check_settings(config, made)
    return made, override(config, {"id": env_id})


def replace_environment(config: Config, env: Any, env_settings: dict[str, Any]) -> tuple[Environment, Config]:
    """Another environment for ``config``, with the same number of environments, time limit and preprocessing."""
    group = dataclasses.asdict(config.env)
    settings = {name: group[name] for name in group if name not in ("id", "env_settings")} | {"env_settings": env_settings}
    made, made_config = make_environment(env, settings, preset=False)
    return made, dataclasses.replace(config, env=made_config.env)


def check_same_spaces(env: Environment, other: Environment, other_id: str) -> None:
    """Raise a ``ConfigError`` unless a policy for ``env`` fits ``other``. Bounds of observations may differ, because no encoder reads them."""
    for role in ("observation", "action"):
        space, other_space = (from_any(getattr(e, f"{role}_space"), role) for e in (env, other))
        is_same = _unbounded(space) == _unbounded(other_space) if role == "observation" else space == other_space
        if not is_same:
            raise ConfigError(f"The {role} space of {other_id} is {other_space}, but the policy is for {space}.")


def _unbounded(space: Space) -> Any:
    """The leaves of ``space`` without the bounds of their numbers."""
    return tree(lambda leaf: dataclasses.replace(leaf, low=-math.inf, high=math.inf) if isinstance(leaf, Box) else leaf, space)
