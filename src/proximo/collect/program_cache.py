"""Compiled functions, and the program cache: compiled functions and environments that are used again in this process."""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from proximo.collect.devices import numbers_of
from proximo.config import Config, custom_settings, to_mapping
from proximo.config.custom import Custom, resolve
from proximo.envs import Environment, GymnasiumEnvironment
from proximo.envs.custom import CustomJaxEnvironment
from proximo.jax_setup import compile_lowered
from proximo.ppo.hyperparameters import StaticSettings

TRACING = threading.Lock()
"""Functions are traced one after the other: the code of users may have caches and counters."""
MAX_KEPT = 20
_kept: OrderedDict[Hashable, Any] = OrderedDict()
_lock = threading.Lock()


class CompiledFunction:
    """A function that is compiled ahead of its calls, once for each size of its arguments. A call finds its
    program by a number, because comparing the shapes of all arguments takes longer than running a small
    network. It donates the arguments with the indices ``donate``. If it is ``brief``, it compiles faster and
    runs slowly."""

    def __init__(self, function: Callable[..., Any], donate: tuple[int, ...] = (), brief: bool = False):
        self._function, self._donate, self._brief = function, donate, brief
        self._programs: dict[int, Any] = {}

    def program(self, size: int, *arguments: Any) -> Any:
        """The program for ``arguments``, or for ``jax.ShapeDtypeStruct`` in their places, compiled once for each ``size``."""
        if size not in self._programs:
            with TRACING:
                lowered = jax.jit(self._function, donate_argnums=self._donate).lower(*arguments)
            self._programs[size] = compile_lowered(lowered, self._brief)
        return self._programs[size]

    def shapes(self, *arguments: Any) -> Any:
        """The result with ``jax.ShapeDtypeStruct`` in the places of its arrays. Nothing is compiled."""
        return jax.eval_shape(self._function, *arguments)

    def __call__(self, size: int, *arguments: Any) -> Any:
        return self.program(size, *arguments)(*arguments)


def reuse(key: Hashable, make: Callable[[], Any]) -> Any:
    """What ``make()`` has returned for ``key`` in JAX's current precision, if it is among the ``MAX_KEPT`` that were used last."""
    key = key, jax.dtypes.canonicalize_dtype("float64").name  # float32, or float64 in JAX's 64-bit mode
    with _lock:  # agents may train in several threads
        made = _kept.get(key)
    if made is None:
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
    x = numbers_of(number) if isinstance(number, jax.Array) else np.asarray(number)
    return str(getattr(number, "dtype", x.dtype)), x.shape, x.tobytes()


def program_key(config: Config, env: Environment, stacked: bool, mesh: Mesh | None) -> Hashable:
    """A key that is equal for trainings with the same compiled functions on the same devices. Such trainings differ only in traced
    numbers, and in settings of ``run`` that no program depends on. Programs of Gymnasium environments depend only on their spaces and agents."""
    is_gymnasium = isinstance(env, GymnasiumEnvironment)
    of_env = (
        (env.observation_space, env.action_space, env.num_agents)
        if is_gymnasium
        else (environment_key(env), config.updates_per_call)
    )
    mapping = to_mapping(config)
    del mapping["ppo"], mapping["run"]  # StaticSettings has those of ``ppo`` that matter.
    # The objects and not their names: a class that a notebook has defined again is another one.
    custom = tuple((name, Custom(resolve(name, value, ()))) for name, value in custom_settings(config).items())
    text = json.dumps(mapping, sort_keys=True, default=repr)
    return "programs", of_env, stacked, mesh, custom, StaticSettings.of(config), config.run.matmul_precision, text
