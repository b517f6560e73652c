"""The environment that the settings of a training describe: how it is made, preprocessed and stepped."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

from proximo.collect.program_cache import reuse
from proximo.config import GYMNASIUM_ONLY, LEAVES, Config
from proximo.envs import Environment, GymnasiumEnvironment, Preprocessing, make_env
from proximo.envs.gymnasium.vector_environment import VectorOptions
from proximo.errors import ConfigError
from proximo.jax_setup import cores


def environment(config: Config) -> Environment:
    """The environment of ``config``. A JAX environment is the same object for the same settings and class, so that compiled
    functions are found again. A class that was defined again (a reloaded module, a notebook's cell) is another class.

    Raises ``ConfigError`` for a setting that has no effect on this environment, and ``EnvError`` if it cannot be made.
    """
    env = make_env(config.env.id, config.env.env_settings, preprocessing_of(config))
    check_settings(config, env)
    if isinstance(env, GymnasiumEnvironment):
        return env
    settings = json.dumps([config.env.env_settings, config.env.levels], sort_keys=True, default=repr)
    return reuse(("environment", type(env), config.env.id, settings), lambda: env)


def preprocessing_of(config: Config) -> Preprocessing:
    """The preprocessing of a Gymnasium environment."""
    return Preprocessing(**{field.name: getattr(config.env, field.name) for field in dataclasses.fields(Preprocessing)})


def vector_options(config: Config, warn: Callable[[str], None] = lambda message: None) -> VectorOptions:
    """How Gymnasium environments are stepped. ``warn`` receives messages about slow starts and lost workers."""
    env = config.env
    return VectorOptions(
        num_workers=env.num_workers,
        single_environments=env.num_workers >= 0 or env.overlap or env.stagger_steps > 0,
        num_groups=2 if env.overlap else 1,
        stagger_steps=env.stagger_steps,
        step_timeout=env.step_timeout,
        reset_timeout=env.reset_timeout,
        max_restarts=env.max_restarts,
        cores=cores(),
        warn=warn,
    )


def check_settings(config: Config, env: Environment) -> None:
    """Raise ``ConfigError`` for a setting that has no effect on ``env``."""
    if isinstance(env, GymnasiumEnvironment):
        env.check(config.env.num_envs, vector_options(config))
        if config.run.seeds > 1 and config.run.seeds_mode == "vmap":
            raise ConfigError(
                f"seeds_mode = vmap: {config.env.id} is a Gymnasium environment, where seeds train one after the other: use serial or auto."
            )
        return
    for name in GYMNASIUM_ONLY:
        leaf = LEAVES[name]
        if getattr(getattr(config, leaf.group), name) != leaf.default:
            raise ConfigError(f"{name} is for Gymnasium environments: it has no effect on {config.env.id}, a JAX environment.")
