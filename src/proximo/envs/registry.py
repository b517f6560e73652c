"""From an id to an environment."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from typing import Any

from proximo.envs.protocol import JaxEnvironment
from proximo.envs.tasks import TASKS
from proximo.envs.users_code import users_code
from proximo.errors import ConfigError, EnvError, nearest
from proximo.spaces import from_any

ID_FORMS = "gymnax:NAME, proximo:NAME, or my_package.module:MyEnv"


def make_env(env_id: str, settings: dict[str, Any] | None = None) -> JaxEnvironment:
    """The environment named ``env_id`` with ``settings`` applied to its parameters.

    Raises ``EnvError`` when there is none of that name or it breaks the protocol, ``ConfigError`` for a setting that it
    does not have.
    """
    settings = settings or {}
    library, separator, name = env_id.partition(":")
    if not separator:
        raise EnvError(_plain_id_error(env_id))
    if library == "proximo":
        if name not in TASKS:
            raise EnvError(f"proximo has no task {name!r}{nearest(name, TASKS)}; it has {', '.join(TASKS)}.")
        return TASKS[name](settings)
    if library == "gymnax":
        from proximo.envs.jax.gymnax import GymnaxEnvironment

        return GymnaxEnvironment(name, settings)
    return _load(library, name, settings)


def listing() -> dict[str, list[str]]:
    """All ids that need no code of the user's, by library."""
    from proximo.envs.jax import gymnax

    return {"gymnax": [f"gymnax:{n}" for n in gymnax.names()], "proximo": [f"proximo:{n}" for n in TASKS]}


def describe(env_id: str) -> dict[str, str]:
    """The spaces of an environment, in words; what stands in the way where it cannot be trained."""
    from proximo.envs.jax.gymnax import DOWNLOADS

    if env_id.partition(":")[2] in DOWNLOADS:
        return {"observation": "known after its download", "action": ""}
    try:
        env = make_env(env_id)
    except EnvError as error:
        return {"error": str(error)}
    return {"observation": str(env.observation_space), "action": str(env.action_space)}


def _plain_id_error(env_id: str) -> str:
    ids = [i for group in listing().values() for i in group]
    twin = f"gymnax:{env_id}"
    if twin in ids:
        return f"{env_id!r} is a Gymnasium id; this version trains JAX environments: its JAX twin is {twin!r}."
    matches = nearest(env_id, [i.partition(":")[2] for i in ids] + ids)
    return f"Unknown environment {env_id!r}{matches}: expected an id of the form {ID_FORMS}; `proximo envs` lists them."


def _load(module_name: str, class_name: str, settings: dict[str, Any]) -> JaxEnvironment:
    """A user's own environment."""
    try:
        found = importlib.util.find_spec(module_name) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise EnvError(
            f"Unknown environment '{module_name}:{class_name}': there is no library or module {module_name!r} on Python's path "
            f"(expected {ID_FORMS}{nearest(module_name, ['gymnax', 'proximo'])})."
        )
    with users_code(f"Importing {module_name}"):
        module = importlib.import_module(module_name)
    if not hasattr(module, class_name):
        classes = [n for n, value in vars(module).items() if inspect.isclass(value)]
        raise EnvError(f"Module {module_name!r} has no class {class_name!r}{nearest(class_name, classes)}.")
    cls = getattr(module, class_name)
    if not callable(cls):
        raise EnvError(f"'{module_name}:{class_name}' is {type(cls).__name__}, no class: expected one that makes an environment.")
    return from_class(cls, settings, f"{module_name}:{class_name}")


def from_class(cls: Any, settings: dict[str, Any], env_id: str) -> JaxEnvironment:
    """An instance of ``cls`` made with ``settings`` as keywords, held against the protocol."""
    try:
        signature = inspect.signature(cls)
    except ValueError:  # some built-in types have none
        raise EnvError(f"{env_id} is no JAX environment (proximo.envs.protocol has the protocol).") from None
    parameters = signature.parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    for name in settings:
        if name not in parameters and not takes_any:
            raise ConfigError(f"env_settings: {env_id} takes no argument {name!r}{nearest(name, parameters)}.")
    try:
        signature.bind(**settings)
    except TypeError as error:
        raise EnvError(f"{env_id} cannot be made: {error}; give it with --env-settings, or a default.") from error
    with users_code(f"{env_id}()"):
        env = cls(**settings)
    check_protocol(env, env_id)
    return env


def check_protocol(env: Any, env_id: str) -> None:
    """Raise ``EnvError`` when ``env`` lacks a part of the protocol; give it empty parameters where it has none."""
    missing = [name for name in ("observation_space", "action_space", "reset", "step") if not hasattr(env, name)]
    if missing:
        raise EnvError(f"{env_id} is no JAX environment: it lacks {', '.join(missing)} (proximo.envs.protocol has the protocol).")
    for name, expected in (("reset", 2), ("step", 4)):
        signature = inspect.signature(getattr(env, name))
        try:
            signature.bind(*range(expected))
        except TypeError:
            arguments = "(key, params)" if name == "reset" else "(key, state, action, params)"
            gymnasium = name == "step" and list(signature.parameters) == ["action"]
            hint = " It looks like a Gymnasium environment; this version trains JAX environments." if gymnasium else ""
            raise EnvError(f"{env_id}.{name}{signature} does not take the {expected} arguments {arguments}.{hint}") from None
    if not hasattr(env, "default_params"):
        object.__setattr__(env, "default_params", ())  # a frozen dataclass or an equinox module is an environment too
    from_any(env.observation_space, "observation")
    from_any(env.action_space, "action")
