"""Finds the adapter that makes the environment of an id.

An id is ``LIBRARY:NAME``, an id of Gymnasium's registry, or ``my_package.module:MyEnv``.

To add a library of environments:

1. Write an adapter module with two functions. ``names()`` returns the names of the library's environments, or ``[]`` if it is not
   installed. ``from_name`` makes one environment and raises ``EnvError`` for an unknown name and ``ConfigError`` for an unknown
   setting.

   - JAX: ``envs/jax/LIBRARY.py`` with ``from_name(name, settings) -> JaxEnvironment``. ``protocol.py`` defines ``JaxEnvironment``;
     ``jax/craftax.py`` is a short example.
   - Gymnasium: ``envs/gymnasium/LIBRARY.py`` with ``from_name(name, settings, preprocessing) -> GymnasiumEnvironment``, made by
     ``from_factory`` (single environments) or ``from_vector`` (a vector environment) of ``gymnasium/construction.py``;
     ``gymnasium/memory_gym.py`` and ``gymnasium/ale.py`` are examples.

2. Add the library to ``JAX_ADAPTERS`` or ``GYMNASIUM_ADAPTERS`` below, and to ``ID_FORMS``.
3. If ``pip install proximo[LIBRARY]`` shall install it, add the extra to ``pyproject.toml``, and to ``EXTRAS`` in ``jax/__init__.py``
   (JAX) or ``gymnasium/construction.py``.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from proximo.envs import custom, hidden_velocities
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.jax import EXTRAS
from proximo.envs.level_seeds import JaxLevels, LevelRange
from proximo.errors import ConfigError, EnvError, nearest

if TYPE_CHECKING:
    from proximo.envs.protocol import Environment

JAX_ADAPTERS = {
    "gymnax": "proximo.envs.jax.gymnax",
    "proximo": "proximo.envs.tasks",
    **{library: f"proximo.envs.jax.{library}" for library in EXTRAS},
}
"""Libraries of JAX environments, and the module of each adapter."""
GYMNASIUM_ADAPTERS = {
    "ale": "proximo.envs.gymnasium.ale",
    "envpool": "proximo.envs.gymnasium.envpool",
    "minigrid": "proximo.envs.gymnasium.minigrid",
    "memory-gym": "proximo.envs.gymnasium.memory_gym",
}
"""Libraries of Gymnasium environments, and the module of each adapter."""
LIBRARIES = (*JAX_ADAPTERS, *GYMNASIUM_ADAPTERS)
"""What may precede the colon of an id, beside modules of the user."""
ID_FORMS = (
    "Gymnasium's NAME-v1, gymnax:NAME, proximo:NAME, brax:NAME, craftax:NAME, jumanji:NAME, navix:NAME, playground:NAME, ale:GAME, "
    "envpool:TASK, minigrid:TASK, memory-gym:TASK, or my_package.module:MyEnv"
)

# Gymnasium ids that gymnax has too. They are listed here because importing gymnax takes longer than some trainings.
TWINS = ("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")


def make_env(env_id: str, settings: dict[str, Any] | None = None, preprocessing: Preprocessing | None = None) -> Environment:
    """Make the environment that ``env_id`` names.

    Args:
        env_id: ``LIBRARY:NAME``, an id of Gymnasium's registry, or ``my_package.module:MyEnv``.
        settings: parameters of the environment (``--env-settings``).
        preprocessing: wrappers, time limit and level seeds; default: none.

    Returns:
        A ``JaxEnvironment`` or a ``GymnasiumEnvironment``.

    Raises:
        EnvError: No environment has this id, its library is not installed, or it does not follow its protocol.
        ConfigError: The environment does not have one of the settings, or cannot be preprocessed this way.
    """
    if env_id.startswith("<"):
        raise EnvError(
            f"{env_id} was given as an object, and no id can find it again: pass it from Python as proximo.load(run, env=…), or train it "
            "by its name, as my_package.module:MyEnv, which every command can find."
        )
    preprocessing = preprocessing or Preprocessing()
    levels = LevelRange.parse(preprocessing.levels) if preprocessing.levels else None
    env = _find(env_id, settings or {}, preprocessing)
    if levels is None or hasattr(env, "make_vector"):  # Gymnasium environments are wrapped one by one
        return env
    return JaxLevels(env, levels)


def _find(env_id: str, settings: dict[str, Any], preprocessing: Preprocessing) -> Environment:
    library, separator, name = env_id.partition(":")
    if separator and library in JAX_ADAPTERS:
        return _adapter(library).from_name(name, settings)
    if separator and library in GYMNASIUM_ADAPTERS:
        return _adapter(library).from_name(name, settings, preprocessing)
    return _gymnasium_or_custom(env_id, settings, preprocessing)


def _adapter(library: str) -> ModuleType:
    return importlib.import_module({**JAX_ADAPTERS, **GYMNASIUM_ADAPTERS}[library])


def _gymnasium_or_custom(env_id: str, settings: dict[str, Any], preprocessing: Preprocessing) -> Environment:
    """``CartPole-v1``, ``module:CartPole-v1`` (importing ``module`` registers the id), or ``module:MyEnv``."""
    module, separator, name = env_id.rpartition(":")
    if separator and name.isidentifier():
        return custom.from_class(custom.find(module, name, ID_FORMS), settings, env_id, preprocessing)
    from proximo.envs.gymnasium import construction

    mask = hidden_velocities.mask_of(env_id)
    if mask is not None and not construction.is_registered(env_id):
        return construction.from_id(mask.base, settings, preprocessing, mask)
    if construction.is_registered(env_id):
        return construction.from_id(env_id, settings, preprocessing)
    ids = [i for group in listing().values() for i in group]
    matches = nearest(env_id, ids)
    raise EnvError(f"Unknown environment {env_id!r}{matches}: expected an id of the form {ID_FORMS}; `proximo envs` lists them.")


def names_code(env_id: str) -> bool:
    """Whether making ``env_id`` imports a module that is not proximo's, as ``my_package.module:MyEnv`` and ``my_package:MyEnv-v0`` do."""
    module, separator, _ = env_id.rpartition(":")
    return bool(separator) and module not in LIBRARIES


def listing() -> dict[str, list[str]]:
    """Return the ids of all installed libraries, by library. Gymnasium's own are under ``"gymnasium"``."""
    from proximo.envs.gymnasium import construction

    return {
        "gymnasium": [*construction.names(), *hidden_velocities.names()],
        **{library: [f"{library}:{name}" for name in _adapter(library).names()] for library in LIBRARIES},
    }


def twin(env_id: str) -> str | None:
    """Return the id of the same task in JAX, or None if there is none."""
    return f"gymnax:{env_id}" if env_id in TWINS else None


def describe(env_id: str) -> dict[str, str]:
    """Describe the spaces of a JAX environment.

    Returns:
        ``observation`` and ``action`` in words, or ``error``: why the environment cannot be trained.
    """
    from proximo.envs.jax.gymnax import DOWNLOADS

    if env_id.partition(":")[2] in DOWNLOADS:
        return {"observation": "known after its download", "action": ""}
    try:
        env = make_env(env_id)
    except (EnvError, ConfigError) as error:
        return {"error": str(error)}
    return {"observation": str(env.observation_space), "action": str(env.action_space)}
