"""The environments and the settings of an agent, made from ids or objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from proximo.collect.environment import check_settings, environment, evaluation_during_training, preprocessing_of
from proximo.config import Config, override
from proximo.config.loading import given_layers, resolve
from proximo.config.schema import RUN_DIRECTORY
from proximo.config.validation import validate
from proximo.envs.custom import from_object, is_vectorized
from proximo.envs.protocol import Environment
from proximo.errors import ConfigError
from proximo.settings import make_config, with_defaults


def set_evaluation(config: Config, env: Environment, given: Any, eval_env: Any) -> tuple[Config, tuple[Environment, Config]]:
    """The settings of an agent, and the environment of its evaluations with the settings that describe it. ``given`` and ``eval_env`` are
    objects for training and evaluation; None: the settings have an id, or no ``eval_env``."""
    other, env_settings = eval_env, None
    if eval_env is None and not config.run.eval_env:
        other, env_settings = same_object(config, given, config.run.eval_env_settings)
    evaluation = evaluation_during_training(config, env, other, env_settings)
    return config if eval_env is None else validate(override(config, {"eval_env": evaluation[1].env.id})), evaluation


def same_object(
    config: Config, given: Any, env_settings: dict[str, Any], levels: str | None = None
) -> tuple[Any, dict[str, Any]]:
    """The object ``given`` that the agent is trained on, with all its settings, if ``env_settings`` or ``levels`` change something; otherwise
    None and ``env_settings``."""
    if given is None or not (env_settings or levels is not None):
        return None, env_settings
    return given, {**config.env.env_settings, **env_settings}


def make_environment(env: Any, settings: Mapping[str, Any], preset: bool) -> tuple[Environment, Config]:
    """The environment of an id or an object, and the settings for it. Raises a ``ConfigError`` for settings of run directories."""
    if name := next(filter(RUN_DIRECTORY.__contains__, settings), None):
        raise ConfigError(
            f"{name} is a setting of run directories: use proximo.train, because a PPO object writes no files by itself."
        )
    if isinstance(env, str):
        config = make_config(env, settings, preset=preset)
        return environment(config), config
    if is_vectorized(type(env)):
        settings = {"num_envs": env.num_envs, **settings}
        if settings["num_envs"] != env.num_envs:
            raise ConfigError(
                f"num_envs = {settings['num_envs']}, but the vector environment has {env.num_envs}: leave out num_envs."
            )
    layers = given_layers({**settings, "id": "<>"})
    plain = resolve(layers) if preset else validate(resolve(layers))
    env_id, made = from_object(env, plain.env.env_settings, preprocessing_of(plain))
    config = with_defaults(layers, made) if preset else plain
    check_settings(config, made)
    return made, override(config, {"id": env_id})


def replace_environment(config: Config, env: Any, env_settings: dict[str, Any]) -> tuple[Environment, Config]:
    """Another environment for ``config``, with the same number of environments, time limit and preprocessing."""
    settings = {**dataclasses.asdict(config.env), "env_settings": env_settings}
    del settings["id"]
    made, made_config = make_environment(env, settings, preset=False)
    return made, dataclasses.replace(config, env=made_config.env, given={**config.given, "id": made_config.env.id})
