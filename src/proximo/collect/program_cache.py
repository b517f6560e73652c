"""The program cache: compiled functions and environments that are used again in this process."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from proximo.config import Config, custom_settings, to_mapping
from proximo.config.custom import Custom, resolve
from proximo.envs import Environment, GymnasiumEnvironment
from proximo.envs.custom import CustomJaxEnvironment
from proximo.ppo.state import StaticSettings

MAX_KEPT = 16
_kept: OrderedDict[Hashable, Any] = OrderedDict()
_lock = threading.Lock()


def reuse(key: Hashable, make: Callable[[], Any]) -> Any:
    """What ``make()`` has returned for ``key`` in JAX's current precision, if it is among the ``MAX_KEPT`` that were used last."""
    key = key, jax.dtypes.canonicalize_dtype("float64").name  # float32, or float64 in JAX's 64-bit mode
    with _lock:  # agents may train in several threads
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    made = make()  # without the lock, because it may run the code of users
    with _lock:
        made = _kept.setdefault(key, made)
        _kept.move_to_end(key)
        while len(_kept) > MAX_KEPT:
            _kept.popitem(last=False)
        return made


def environment_key(env: Environment) -> Hashable:
    """The environment, and the values of its parameters, which are constants of compiled programs and may change."""
    leaves, structure = jax.tree.flatten(getattr(env, "default_params", None))
    given = env.env if isinstance(env, CustomJaxEnvironment) else env  # this adapter is made anew for each agent
    return id(given), structure, tuple(map(_number_key, leaves))


def _number_key(number: Any) -> Hashable:
    is_random_key = isinstance(number, jax.Array) and jax.numpy.issubdtype(number.dtype, jax.dtypes.prng_key)
    x = np.asarray(jax.random.key_data(number) if is_random_key else number)
    return is_random_key, x.dtype.name, x.shape, x.tobytes()


def program_key(config: Config, env: Environment, stacked: bool, mesh: Mesh | None) -> Hashable:
    """A key that is equal for trainings with the same compiled functions on the same devices. Such trainings differ only in
    traced numbers, and in settings of ``run`` that no program depends on."""
    return "jax program", environment_key(env), stacked, mesh, config.updates_per_call, _static(config)


def gymnasium_key(config: Config, env: GymnasiumEnvironment, mesh: Mesh | None) -> Hashable:
    """``program_key`` for Gymnasium environments, whose programs depend only on spaces, settings and devices."""
    return "gymnasium programs", env.observation_space, env.action_space, mesh, _static(config)


def _static(config: Config) -> Hashable:
    mapping = to_mapping(config)
    del mapping["ppo"], mapping["run"]  # StaticSettings has those of ``ppo`` that matter.
    # The objects and not their names: a class that was defined again, for example in a notebook, is another one.
    custom = tuple((name, Custom(resolve(name, value, ()))) for name, value in custom_settings(config).items())
    text = json.dumps(mapping, sort_keys=True, default=repr)
    return custom, StaticSettings.of(config), config.run.matmul_precision, text
