"""Finds the adapter that makes the environment of an id.

An id is ``LIBRARY:NAME``, an id of Gymnasium's registry, or ``my_package.module:MyEnv``.

To add a library of environments:

1. Write an adapter with two functions. ``names()`` returns the names of the environments that can be trained;
   it is called only if the library is installed. ``from_name`` makes one of them, and raises ``ConfigError``
   for an unknown setting. The adapter is also imported where the library is not installed, so only these functions
   import it, by ``libraries.load``; of a JAX library, whose import takes seconds, only ``from_name``.

   - ``envs/jax/LIBRARY.py``: ``from_name(name, settings) -> JaxEnvironment``, which ``protocol.py`` defines.
     ``jax/craftax.py`` is a short example.
   - ``envs/gymnasium/LIBRARY.py``: ``from_name(name, settings, preprocessing) -> GymnasiumEnvironment``, made by
     ``from_factory`` or ``from_vector`` of ``gymnasium/environment.py``; ``gymnasium/ale.py`` is an example.

2. Add a row to ``LIBRARIES`` in ``envs/libraries.py``, which error messages, ``proximo envs``, the tests and
   ``.ci/extras`` read. ``docs/environments.md`` describes the ids.
3. A library that an extra installs also needs the extra in ``pyproject.toml`` and in ``README.md``, and the versions
   of its packages in ``constraints.txt``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from proximo.custom_code import custom_code_errors
from proximo.envs import custom, libraries, unknown_ids
from proximo.envs.gymnasium import registered_ids
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.libraries import LIBRARIES
from proximo.errors import ConfigError, EnvError, nearest

if TYPE_CHECKING:
    from proximo.envs.protocol import Environment

# Gymnasium ids that gymnax has too. They are listed here because importing gymnax takes longer than some trainings.
TWINS = ("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")


def make_env(
    env_id: str, settings: dict[str, Any] | None = None, preprocessing: Preprocessing | None = None, from_file: bool = False
) -> Environment:
    """Make the environment that ``env_id`` names. Its spaces are those of ``proximo.spaces``.

    Args:
        env_id: ``LIBRARY:NAME``, an id of Gymnasium's registry, or ``my_package.module:MyEnv``.
        settings: parameters of the environment (``--env-settings``).
        preprocessing: wrappers, time limit, level seeds and randomization; default: none.
        from_file: whether a file has the id. It must then not name a function of an installed library.

    Returns:
        A ``JaxEnvironment`` or a ``GymnasiumEnvironment``.

    Raises:
        EnvError: No environment has this id, its library is not installed, or it does not follow its protocol.
        ConfigError: The environment does not have one of the settings, or cannot be preprocessed this way.
    """
    if not isinstance(env_id, str):
        raise EnvError(f"env_id = {env_id!r}: expected the id of an environment, such as CartPole-v1 or my_package.module:MyEnv.")
    if env_id.startswith("<"):
        raise EnvError(
            f"{env_id} was given as an object, so it has no id by which it can be found again. Load the run from Python with "
            "proximo.load(run, env=…), or train with its name, such as my_package.module:MyEnv."
        )
    preprocessing = preprocessing or Preprocessing()
    with _answers(env_id):
        return custom.with_settings(_maker(env_id, from_file)(settings or {}, preprocessing), env_id, preprocessing)


def check_id(env_id: str) -> None:
    """Raise ``EnvError`` if no environment has this id. Names of a library that is not installed are accepted."""
    library, separator, _ = env_id.partition(":")
    if separator and library in LIBRARIES and not libraries.is_installed(library):
        return
    with _answers(env_id):
        _maker(env_id)
        if unknown_ids.elsewhere(env_id) and not env_id.startswith("dm_control/"):  # which Shimmy may have registered
            raise EnvError("Unknown environment")


@contextlib.contextmanager
def _answers(env_id: str) -> Iterator[None]:
    """Add to an ``EnvError`` what to use instead of an id that is known from elsewhere."""
    try:
        yield
    except EnvError as error:
        if (elsewhere := unknown_ids.elsewhere(env_id)) is None:
            raise
        cause = "" if str(error).startswith("Unknown environment") else f"{str(error).rstrip('.')}; "
        raise EnvError(f"{env_id} cannot be made: {cause}{elsewhere}") from error


def _maker(env_id: str, from_file: bool = False) -> Callable[[dict[str, Any], Preprocessing], Environment]:
    """The function that makes the environment. Raises ``EnvError`` if the id is unknown."""
    library, separator, name = env_id.partition(":")
    if separator and library in LIBRARIES:
        if not libraries.is_installed(library):
            raise EnvError(f"{env_id} needs a library that is not installed: pip install {LIBRARIES[library].install}.")
        if name not in (known := libraries.names(library)):
            raise EnvError(f"{library} has no environment {name!r}{nearest(name, known)}; `proximo envs {library}` lists them.")

        def of_library(settings: dict[str, Any], preprocessing: Preprocessing) -> Environment:
            more = () if LIBRARIES[library].is_jax else (preprocessing,)
            with custom_code_errors(f"Making {env_id}"):
                return libraries.adapter(library).from_name(name, settings, *more)

        return of_library
    module, separator, name = env_id.rpartition(":")
    if separator and name.isidentifier():
        cls = custom.find(module, name, from_file)
        return lambda settings, preprocessing: custom.from_class(cls, settings, env_id, preprocessing)
    if registered_ids.is_registered(env_id):
        return partial(registered_ids.from_id, env_id)
    raise unknown_ids.unknown(env_id, [i for group in listing().values() for i in group])


def names_code(env_id: str) -> bool:
    """Whether making ``env_id`` imports a module of the user, as ``my_package.module:MyEnv`` does."""
    module, separator, _ = env_id.rpartition(":")
    return bool(separator) and module not in LIBRARIES


def listing() -> dict[str, list[str]]:
    """Return the ids of all installed libraries, by library. Gymnasium's own are under ``"gymnasium"``."""
    return {
        "gymnasium": registered_ids.names(),
        **{library: [f"{library}:{name}" for name in libraries.names(library)] for library in LIBRARIES},
    }


def twin(env_id: str) -> str | None:
    """Return the id of the same task in JAX, or None if there is none."""
    return f"gymnax:{env_id}" if env_id in TWINS else None


def describe(env_id: str) -> dict[str, str]:
    """The spaces of a JAX environment in words, ``{observation, action}``, or why it cannot be trained, ``{error}``."""
    if env_id == "gymnax:MNISTBandit-bsuite":
        return {"observation": "known after its download", "action": ""}
    try:
        env = make_env(env_id)
    except (EnvError, ConfigError) as error:
        return {"error": str(error)}
    return {"observation": str(env.observation_space), "action": str(env.action_space)}
