"""The program cache: environments and compiled functions that later trainings and evaluations in this process use again."""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import jax

from proximo.collect.lazy_vector_environment import vector_options
from proximo.config import GYMNASIUM_ONLY, LEAVES, Config, custom_settings, to_mapping
from proximo.config.custom import Custom, resolve
from proximo.envs import Environment, GymnasiumEnvironment, JaxEnvironment, Preprocessing, make_env
from proximo.errors import ConfigError
from proximo.ppo.state import StaticSettings
from proximo.types import Hyperparameters

MAX_KEPT = 16
_TRACED = {field.name for field in dataclasses.fields(Hyperparameters)}
_kept: OrderedDict[Hashable, Any] = OrderedDict()


def reuse(key: Hashable, make: Callable[[], Any]) -> Any:
    """What ``make()`` returned for ``key``. It is called if that is not among the last ``MAX_KEPT`` objects."""
    if key not in _kept:
        _kept[key] = make()
    _kept.move_to_end(key)
    while len(_kept) > MAX_KEPT:
        _kept.popitem(last=False)
    return _kept[key]


def precision() -> str:
    """``float32``, or ``float64`` in JAX's 64-bit mode."""
    return jax.dtypes.canonicalize_dtype("float64").name


def environment(config: Config) -> Environment:
    """The environment of ``config``. A JAX environment is the same object for the same settings and class, so that compiled
    functions are found again. A class that was defined again (a reloaded module, a notebook's cell) is another one.

    Raises:
        ConfigError: a setting has no effect on this environment.
        EnvError: the environment cannot be made.
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


def check_settings(config: Config, env: Environment) -> None:
    """Raise ``ConfigError`` for a setting that has no effect on ``env``."""
    if isinstance(env, GymnasiumEnvironment):
        _check_gymnasium_settings(config, env)
        return
    for name in GYMNASIUM_ONLY:
        leaf = LEAVES[name]
        if getattr(getattr(config, leaf.group), name) != leaf.default:
            raise ConfigError(f"{name} is for Gymnasium environments: it has no effect on {config.env.id}, a JAX environment.")


def _check_gymnasium_settings(config: Config, env: GymnasiumEnvironment) -> None:
    env.check(config.env.num_envs, vector_options(config))
    if config.run.seeds > 1 and config.run.seeds_mode == "vmap":
        raise ConfigError(
            f"seeds_mode = vmap: {config.env.id} is a Gymnasium environment, where seeds train one after the other: use serial or auto."
        )


def program_key(config: Config, env: JaxEnvironment, stacked: bool) -> Hashable:
    """A key that is equal for two trainings with the same compiled functions: they differ in traced numbers and in ``run``
    only."""
    return "jax program", id(env), stacked, config.updates_per_call, _static(config)


def gymnasium_key(config: Config, env: GymnasiumEnvironment) -> Hashable:
    """The same for Gymnasium environments, whose compiled functions depend on their spaces only."""
    return "gymnasium programs", env.observation_space, env.action_space, _static(config)


def _static(config: Config) -> Hashable:
    mapping = to_mapping(config)
    mapping["ppo"] = {name: value for name, value in mapping["ppo"].items() if name not in _TRACED}
    del mapping["run"]
    # Objects, not their names: a class that was defined again is another one.
    custom = tuple(Custom(resolve(name, value, ())) for name, value in custom_settings(config).items())
    return (
        custom,
        StaticSettings.of(config),
        config.run.matmul_precision,
        precision(),
        json.dumps(mapping, sort_keys=True, default=repr),
    )
