"""Environments and compiled functions that a later training or evaluation in this process uses again."""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import jax

from proximo.config import HOST_ONLY, LEAVES, Config, own_code, to_mapping
from proximo.drivers.host import pool_options
from proximo.envs import HostEnvironment, JaxEnvironment, Preprocessing, make_env
from proximo.errors import ConfigError
from proximo.own_code import Own, resolve
from proximo.ppo.state import Plan
from proximo.types import Hyperparameters

MOST_KEPT = 16
_TRACED = {field.name for field in dataclasses.fields(Hyperparameters)}
_kept: OrderedDict[Hashable, Any] = OrderedDict()


def reuse(key: Hashable, make: Callable[[], Any]) -> Any:
    """What ``make()`` gave for ``key``; made now when it was not yet, or is not among the last ``MOST_KEPT`` any more."""
    if key not in _kept:
        _kept[key] = make()
    _kept.move_to_end(key)
    while len(_kept) > MOST_KEPT:
        _kept.popitem(last=False)
    return _kept[key]


def precision() -> str:
    """``float32``, or ``float64`` in JAX's 64-bit mode."""
    return jax.dtypes.canonicalize_dtype("float64").name


def environment(config: Config) -> JaxEnvironment | HostEnvironment:
    """The environment of ``config``: the same object for the same settings and class, so that what was compiled for it is
    found again. A class that was defined anew (a module loaded again, a notebook's cell) is another one.

    Raises ``ConfigError`` for a setting that would have no effect on it.
    """
    env = make_env(config.env.id, config.env.env_settings, preprocessing_of(config))
    hold_settings(config, env)
    if isinstance(env, HostEnvironment):
        return env
    settings = json.dumps([config.env.env_settings, config.env.levels], sort_keys=True, default=repr)
    return reuse(("environment", type(env), config.env.id, settings), lambda: env)


def preprocessing_of(config: Config) -> Preprocessing:
    """What is done to observations and actions of an environment of the host."""
    return Preprocessing(**{field.name: getattr(config.env, field.name) for field in dataclasses.fields(Preprocessing)})


def hold_settings(config: Config, env: JaxEnvironment | HostEnvironment) -> None:
    """Raise ``ConfigError`` for a setting that would have no effect on ``env``."""
    if isinstance(env, HostEnvironment):
        _hold_host_settings(config, env)
        return
    for name in HOST_ONLY:
        leaf = LEAVES[name]
        if getattr(getattr(config, leaf.group), name) != leaf.default:
            raise ConfigError(f"{name} is for Gymnasium's environments: {config.env.id} is one in JAX, where it has no effect.")


def _hold_host_settings(config: Config, env: HostEnvironment) -> None:
    env.hold(config.env.num_envs, pool_options(config))
    if config.run.seeds > 1 and config.run.seeds_mode == "vmap":
        raise ConfigError(
            f"seeds_mode = vmap: {config.env.id} is stepped on the host, where seeds train one after the other: use serial, or auto."
        )


def stacks_seeds(config: Config, env: Any) -> bool:
    """Whether several seeds train in one compiled program."""
    return config.run.seeds_mode == "vmap" or (config.run.seeds_mode == "auto" and not isinstance(env, HostEnvironment))


def program_key(config: Config, env: JaxEnvironment, stacked: bool) -> Hashable:
    """Equal for two trainings that the same compiled program serves: they differ in traced numbers and in ``run`` only."""
    return "program", id(env), stacked, config.updates_per_call, _static(config)


def host_key(config: Config, env: HostEnvironment) -> Hashable:
    """The same for what a host driver compiles, which sees of an environment its spaces only."""
    return "host", env.observation_space, env.action_space, _static(config)


def _static(config: Config) -> Hashable:
    mapping = to_mapping(config)
    mapping["ppo"] = {name: value for name, value in mapping["ppo"].items() if name not in _TRACED}
    del mapping["run"]
    # Objects, not their names: a class that was defined anew is another one.
    own = tuple(Own(resolve(name, value, ())) for name, value in own_code(config).items())
    return own, Plan.of(config), config.run.matmul_precision, precision(), json.dumps(mapping, sort_keys=True, default=repr)
