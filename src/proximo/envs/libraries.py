"""The libraries of environments (``registry.py`` explains how to add one), and what their adapters share."""

import dataclasses
import importlib
import importlib.util
import math
from collections.abc import Iterable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from proximo.custom_code import custom_code_errors
from proximo.errors import ConfigError, nearest

NO_LIMIT = np.iinfo(np.int32).max
"""Steps of an episode whose limit an adapter counts itself."""


class Library(NamedTuple):
    """A library of environments, whose ids are ``LIBRARY:NAME``."""

    is_jax: bool
    """Whether its environments are JAX environments; otherwise they are Gymnasium environments."""
    module: str
    """The module by which the library is imported."""
    install: str
    """Arguments of ``pip install``; empty for proximo's own tasks."""
    example: str
    """A name, which tests train."""


LIBRARIES = {
    "gymnax": Library(True, "gymnax", "gymnax", "CartPole-v1"),
    "proximo": Library(True, "proximo", "", "PocMemory"),
    "brax": Library(True, "brax", "'proximo[brax]'", "inverted_pendulum"),
    "craftax": Library(True, "craftax", "'proximo[craftax]'", "Craftax-Classic-Symbolic-v1"),
    "jumanji": Library(True, "jumanji", "'proximo[jumanji]'", "Snake-v1"),
    "pgx": Library(True, "pgx", "'proximo[pgx]'", "tic_tac_toe"),
    "jaxmarl": Library(True, "jaxmarl", "'proximo[jaxmarl]'", "MPE_simple_spread_v3"),
    "navix": Library(True, "navix", "'proximo[navix]'", "Navix-Empty-5x5-v0"),
    "playground": Library(True, "mujoco_playground", "'proximo[playground]'", "CartpoleBalance"),
    "ale": Library(False, "ale_py", "'proximo[atari]'", "pong"),
    "envpool": Library(False, "envpool", "'proximo[envpool]'", "Pong-v5"),
    "minigrid": Library(False, "minigrid", "'proximo[minigrid]'", "MemoryS7"),
    "pettingzoo": Library(False, "pettingzoo", "'proximo[pettingzoo]'", "sisl.multiwalker_v9"),
    "mpe2": Library(False, "mpe2", "'proximo[pettingzoo]'", "simple_spread_v3"),
    # without its dependencies, which require an older Gymnasium
    "memory-gym": Library(False, "memory_gym", "--no-deps memory-gym", "MysteryPath-Grid"),
}
"""What may precede the colon of an id, besides modules of the user."""
ID_FORMS = ", ".join(("Gymnasium's NAME-v1", *(f"{library}:NAME" for library in LIBRARIES), "or my_package.module:MyEnv"))


def adapter(library: str) -> ModuleType:
    """The module that adapts ``library``, with the functions ``names`` and ``from_name``."""
    kind = "jax" if LIBRARIES[library].is_jax else "gymnasium"
    place = "tasks" if library == "proximo" else f"{kind}.{library.replace('-', '_')}"
    return importlib.import_module(f"proximo.envs.{place}")


def names(library: str) -> list[str]:
    """The names of the environments of ``library``; empty if it is not installed."""
    return adapter(library).names() if is_installed(library) else []


def is_installed(library: str) -> bool:
    """Whether ``library`` is installed. It is not imported: that may take seconds."""
    return importlib.util.find_spec(LIBRARIES[library].module) is not None


def load(env_id: str, submodule: str = "") -> ModuleType:
    """Import the library of ``env_id``, or a part of it. Raises ``EnvError`` if this fails."""
    module = LIBRARIES[env_id.partition(":")[0]].module
    with custom_code_errors(f"Importing {module}"):
        return importlib.import_module(f"{module}{submodule}")


def check_names(given: Iterable[str], known: Iterable[str], env_id: str) -> None:
    """Raise ``ConfigError`` if a name of ``env_settings``, ``given``, is not in ``known``."""
    known = list(known)
    for name in given:
        if name not in known:
            has = ", ".join(known) or "none"
            raise ConfigError(f"env_settings: {env_id} has no parameter {name!r}{nearest(name, known)}; it has {has}.")


def check_type(name: str, value: Any, default: Any) -> None:
    """Raise ``ConfigError`` if ``value`` has another type than ``default``, a number or text."""
    expected = type(default if np.ndim(default) else np.asarray(default).item())
    words = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text"}.get(expected)
    fits = isinstance(value, expected | int if expected is float else expected) and isinstance(value, bool) == (expected is bool)
    if words and not (fits and (isinstance(value, str) or math.isfinite(value))):
        raise ConfigError(f"env_settings: {name} = {value!r}: expected {words}.")
    if not words and isinstance(value, str):
        raise ConfigError(f"env_settings: {name} = {value!r}: expected a number or true/false.")


def replace_params(params: Any, settings: dict[str, Any], env_id: str) -> Any:
    """Replace fields of a dataclass. Raises ``ConfigError`` for an unknown field or another type."""
    check_names(settings, [f.name for f in dataclasses.fields(params)], env_id)
    for name, value in settings.items():
        check_type(name, value, getattr(params, name))
    return dataclasses.replace(params, **settings)


def take_limit(given: dict[str, Any], name: str, default: int) -> tuple[int, dict[str, Any]]:
    """Split ``name``, a limit of the steps of an episode, from the other settings."""
    limit = given.get(name, default)
    check_type(name, limit, default)
    if not 1 <= limit < 2**31:
        raise ConfigError(f"env_settings: {name} = {limit}: expected a number of steps, 1 … 2³¹ - 1.")
    return limit, {key: value for key, value in given.items() if key != name}


class Described:
    """An environment whose ``repr`` is one line with its spaces."""

    observation_space: Any
    action_space: Any

    def __repr__(self) -> str:
        env_id = getattr(self, "id", None)
        name = "" if env_id is None else f"{env_id!r}: "
        return f"{type(self).__name__}({name}{self.observation_space} → {self.action_space})"


def num_agents(env: Any) -> int:
    """Number of agents in one environment. Each agent has a column of the rollout."""
    return getattr(env, "num_agents", 1)


def has_opponent(env: Any) -> bool:
    """Whether ``env`` is a two-player game, whose parameters are the opponent."""
    return getattr(env, "has_opponent", False)


class JaxWrapper(Described):
    """A JAX environment that changes another one, ``env``."""

    def __init__(self, env: Any):
        self.env, self.default_params = env, getattr(env, "default_params", ())
        for name in ("observation_space", "action_space", "num_agents", "has_opponent", "render_fps"):
            if hasattr(env, name):
                setattr(self, name, getattr(env, name))
        for name in ("render", "world_state"):
            if (method := getattr(env, name, None)) is not None:
                setattr(self, name, lambda state, params, method=method: method(*self.inside(state, params)))

    def inside(self, state: Any, params: Any) -> tuple[Any, Any]:
        """The state and the parameters of ``env``."""
        return state, params

    def observed(self, observation: Any, state: Any, params: Any) -> Any:
        """What this environment observes where ``env`` observes ``observation``."""
        return observation

    def reset(self, key: Any, params: Any) -> tuple[Any, ...]:
        state, observation, *rest = self.env.reset(key, params)  # a wrong number of values is reported elsewhere
        return state, self.observed(observation, state, params), *rest

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, ...]:
        state, observation, *rest = self.env.step(key, state, action, params)
        return state, self.observed(observation, state, params), *rest


def unwrapped(env: Any) -> Any:
    """The JAX environment inside all wrappers of proximo."""
    return unwrapped(env.env) if isinstance(env, JaxWrapper) else env
