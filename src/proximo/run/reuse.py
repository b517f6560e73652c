"""Environments and compiled functions that a later training or evaluation in this process uses again."""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import jax

from proximo.config import Config, to_mapping
from proximo.envs import JaxEnvironment, make_env
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


def environment(config: Config) -> JaxEnvironment:
    """The environment of ``config``: the same object for the same settings and class, so that what was compiled for it is
    found again. A class that was defined anew (a module loaded again, a notebook's cell) is another one."""
    env = make_env(config.env.id, config.env.env_settings)
    settings = json.dumps(config.env.env_settings, sort_keys=True, default=repr)
    return reuse(("environment", type(env), config.env.id, settings), lambda: env)


def program_key(config: Config, env: JaxEnvironment, stacked: bool) -> Hashable:
    """Equal for two trainings that the same compiled program serves: they differ in traced numbers and in ``run`` only."""
    mapping = to_mapping(config)
    mapping["ppo"] = {name: value for name, value in mapping["ppo"].items() if name not in _TRACED}
    del mapping["run"]
    static = (Plan.of(config), config.updates_per_call, config.run.matmul_precision, precision())
    return "program", id(env), stacked, static, json.dumps(mapping, sort_keys=True, default=repr)
