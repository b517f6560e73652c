"""From an id to an environment."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from proximo.envs import masked, own
from proximo.envs.host.preprocessing import Preprocessing
from proximo.envs.jax import EXTRAS
from proximo.envs.levels import LevelRange, LevelsJax
from proximo.envs.protocol import JaxEnvironment
from proximo.envs.tasks import TASKS
from proximo.errors import ConfigError, EnvError, nearest

if TYPE_CHECKING:
    from proximo.envs.host.environment import HostEnvironment

LIBRARIES = ("proximo", "gymnax", *EXTRAS, "ale", "envpool", "minigrid", "memory-gym")
"""What may stand before the colon of an id."""
ID_FORMS = (
    "Gymnasium's NAME-v1, gymnax:NAME, proximo:NAME, brax:NAME, craftax:NAME, jumanji:NAME, navix:NAME, playground:NAME, ale:GAME, "
    "envpool:TASK, minigrid:TASK, memory-gym:TASK, or my_package.module:MyEnv"
)

# Gymnasium's ids that gymnax has too; written out, because importing gymnax takes longer than training on some of them.
TWINS = ("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")


def make_env(
    env_id: str, settings: dict[str, Any] | None = None, preprocessing: Preprocessing | None = None
) -> JaxEnvironment | HostEnvironment:
    """The environment named ``env_id`` with ``settings`` applied to its parameters: one in JAX, or an ordinary one.

    Raises ``EnvError`` when there is none of that name or it breaks the protocol, ``ConfigError`` for a setting that it
    does not have.
    """
    if env_id.startswith("<"):
        raise EnvError(
            f"{env_id} was given as an object, which no id finds again: give it from Python as proximo.load(run, env=…), or train with its "
            "name, as my_package.module:MyEnv, which every verb finds."
        )
    preprocessing = preprocessing or Preprocessing()
    levels = LevelRange.parse(preprocessing.levels) if preprocessing.levels else None
    env = _find(env_id, settings or {}, preprocessing)
    if levels is None or hasattr(env, "make_vector"):  # ordinary ones are wrapped one by one
        return env
    return LevelsJax(env, levels)


def _find(env_id: str, settings: dict[str, Any], preprocessing: Preprocessing) -> JaxEnvironment | HostEnvironment:
    library, separator, name = env_id.partition(":")
    if library in ("proximo", "gymnax") and separator:
        return _task(name, settings) if library == "proximo" else _gymnax(name, settings)
    if library in EXTRAS and separator:
        return _adapter(library).from_name(name, settings)
    if library == "ale" and separator:
        from proximo.envs.host import ale

        return ale.from_game(name, settings, preprocessing)
    if library == "envpool" and separator:
        from proximo.envs.host import envpool

        return envpool.from_task(name, settings, preprocessing)
    if library == "minigrid" and separator:
        from proximo.envs.host import minigrid

        return minigrid.from_name(name, settings, preprocessing)
    if library == "memory-gym" and separator:
        from proximo.envs.host import memory_gym

        return memory_gym.from_name(name, settings, preprocessing)
    return _gymnasium_or_own(env_id, settings, preprocessing)


def _task(name: str, settings: dict[str, Any]) -> JaxEnvironment:
    if name not in TASKS:
        raise EnvError(f"proximo has no task {name!r}{nearest(name, TASKS)}; it has {', '.join(TASKS)}.")
    return TASKS[name](settings)


def _gymnax(name: str, settings: dict[str, Any]) -> JaxEnvironment:
    from proximo.envs.jax.gymnax import GymnaxEnvironment

    mask = masked.mask_of(name)
    return GymnaxEnvironment(name, settings) if mask is None else masked.MaskedJax(GymnaxEnvironment(mask.base, settings), mask)


def _adapter(library: str) -> ModuleType:
    return importlib.import_module(f"proximo.envs.jax.{library}")


def _gymnasium_or_own(env_id: str, settings: dict[str, Any], preprocessing: Preprocessing) -> Any:
    """``CartPole-v1``, ``module:CartPole-v1`` (the module registers it), ``module:MyEnv``."""
    module, separator, name = env_id.rpartition(":")
    if separator and name.isidentifier():
        return own.from_class(own.find(module, name, ID_FORMS), settings, env_id, preprocessing)
    from proximo.envs.host import gymnasium

    mask = masked.mask_of(env_id)
    if mask is not None and not gymnasium.is_registered(env_id):
        return gymnasium.from_id(mask.base, settings, preprocessing, mask)
    if gymnasium.is_registered(env_id):
        return gymnasium.from_id(env_id, settings, preprocessing)
    ids = [i for group in listing().values() for i in group]
    matches = nearest(env_id, ids)
    raise EnvError(f"Unknown environment {env_id!r}{matches}: expected an id of the form {ID_FORMS}; `proximo envs` lists them.")


def names_code(env_id: str) -> bool:
    """Whether ``env_id`` names a module of somebody's to import, as ``my_package.module:MyEnv`` or ``my_package:MyEnv-v0`` do."""
    module, separator, _ = env_id.rpartition(":")
    return bool(separator) and module not in LIBRARIES


def listing() -> dict[str, list[str]]:
    """All ids that need no code of the user's, by library."""
    from proximo.envs.host import ale, envpool, gymnasium, memory_gym, minigrid
    from proximo.envs.jax import gymnax

    return {
        "gymnasium": [*gymnasium.names(), *masked.names()],
        "gymnax": [f"gymnax:{n}" for n in gymnax.names()],
        "proximo": [f"proximo:{n}" for n in TASKS],
        **{library: [f"{library}:{n}" for n in _adapter(library).names()] for library in EXTRAS},
        "ale": [f"ale:{n}" for n in ale.names()],
        "envpool": [f"envpool:{n}" for n in envpool.names()],
        "minigrid": [f"minigrid:{n}" for n in minigrid.names()],
        "memory-gym": [f"memory-gym:{n}" for n in memory_gym.names()],
    }


def twin(env_id: str) -> str | None:
    """The same task as an environment in JAX, where there is one."""
    return f"gymnax:{env_id}" if env_id in TWINS else None


def describe(env_id: str) -> dict[str, str]:
    """The spaces of an environment in JAX, in words; what stands in the way where it cannot be trained."""
    from proximo.envs.jax.gymnax import DOWNLOADS

    if env_id.partition(":")[2] in DOWNLOADS:
        return {"observation": "known after its download", "action": ""}
    try:
        env = make_env(env_id)
    except (EnvError, ConfigError) as error:
        return {"error": str(error)}
    return {"observation": str(env.observation_space), "action": str(env.action_space)}
