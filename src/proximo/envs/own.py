"""A user's own environment: found, made, and recognised as one in JAX or one that speaks Gymnasium."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from typing import Any

from proximo.envs.host.preprocessing import Preprocessing
from proximo.envs.jax import EXTRAS
from proximo.errors import ConfigError, EnvError, nearest
from proximo.spaces import from_any
from proximo.users_code import hold_module, is_users_function, users_code


def find(module_name: str, class_name: str, forms: str) -> Any:
    """The class of that name in the module, or a function of the user's own that makes an environment. Raises ``EnvError`` when there is
    none, or it is something else."""
    hold_module(module_name)
    try:
        found = importlib.util.find_spec(module_name) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise EnvError(
            f"Unknown environment '{module_name}:{class_name}': there is no library or module {module_name!r} on Python's path "
            f"(expected {forms}{nearest(module_name, ('gymnax', 'proximo', 'envpool', 'ale', *EXTRAS))})."
        )
    with users_code(f"Importing {module_name}"):
        module = importlib.import_module(module_name)
    if not hasattr(module, class_name):
        classes = [n for n, value in vars(module).items() if inspect.isclass(value)]
        raise EnvError(f"Module {module_name!r} has no class {class_name!r}{nearest(class_name, classes)}.")
    cls = getattr(module, class_name)
    # Before it is called: the settings of a run that came from elsewhere must not call anything else.
    if is_users_function(cls):
        return cls
    if not inspect.isclass(cls):
        raise EnvError(
            f"'{module_name}:{class_name}' is {type(cls).__name__}, no class: expected that of an environment, or a function in a module of "
            "your own that makes one."
        )
    lacking = [name for name in ("reset", "step") if not callable(getattr(cls, name, None))]
    if lacking:
        raise EnvError(
            f"'{module_name}:{class_name}' is neither a JAX environment nor one of Gymnasium's: it lacks {' and '.join(lacking)}, as "
            "methods of the class (proximo.envs.protocol has the protocol)."
        )
    return cls


def from_class(cls: Any, settings: dict[str, Any], env_id: str, preprocessing: Preprocessing | None = None) -> Any:
    """The environment that ``cls`` makes with ``settings`` as keywords: a ``JaxEnvironment``, or a ``HostEnvironment`` where
    it speaks Gymnasium. Raises ``EnvError`` where it is neither, ``ConfigError`` for a setting that it does not take."""
    preprocessing = preprocessing or Preprocessing()
    vectorised = _is_vectorised(cls)
    _hold_settings(cls, {**settings, **({"num_envs": 1} if vectorised else {})}, env_id)
    if vectorised or _is_gymnasium(cls):
        from proximo.envs.host import gymnasium

        return gymnasium.from_class(cls, settings, env_id, preprocessing)
    with users_code(f"{env_id}()"):
        env = cls(**settings)
    if _steps_by_action(env):
        from proximo.envs.host import gymnasium

        return gymnasium.from_class(cls, settings, env_id, preprocessing)
    check_protocol(env, env_id)
    return env


def _hold_settings(cls: Any, settings: dict[str, Any], env_id: str) -> None:
    try:
        signature = inspect.signature(cls)
    except ValueError:  # some built-in types have none
        raise EnvError(f"{env_id} is no environment (proximo.envs.protocol has the protocol).") from None
    parameters = signature.parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    for name in settings:
        if name not in parameters and not takes_any:
            raise ConfigError(f"env_settings: {env_id} takes no argument {name!r}{nearest(name, parameters)}.")
    try:
        signature.bind(**settings)
    except TypeError as error:
        raise EnvError(f"{env_id} cannot be made: {error}; give it with --env-settings, or a default.") from error


def _bases(cls: Any) -> list[str]:
    """``gymnasium.core.Env`` …: known by name, so that Gymnasium is not imported for an environment in JAX."""
    return [f"{base.__module__}.{base.__qualname__}" for base in getattr(cls, "__mro__", ())]


def _is_gymnasium(cls: Any) -> bool:
    return "gymnasium.core.Env" in _bases(cls)


def _is_vectorised(cls: Any) -> bool:
    return "gymnasium.vector.vector_env.VectorEnv" in _bases(cls)


def _steps_by_action(env: Any) -> bool:
    """Whether ``env.step`` takes an action alone, as Gymnasium's does; no base class is asked for."""
    if _is_gymnasium(type(env)):
        return True
    if not callable(getattr(env, "step", None)) or not hasattr(env, "reset"):
        return False
    parameters = inspect.signature(env.step).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(needed) == 1


def check_protocol(env: Any, env_id: str) -> None:
    """Raise ``EnvError`` when ``env`` lacks a part of the protocol of JAX environments; give it empty parameters where it has
    none."""
    missing = [name for name in ("observation_space", "action_space", "reset", "step") if not hasattr(env, name)]
    if missing:
        raise EnvError(
            f"{env_id} is neither a JAX environment nor one of Gymnasium's: it lacks {', '.join(missing)} "
            "(proximo.envs.protocol has the protocol)."
        )
    for name, expected in (("reset", 2), ("step", 4)):
        signature = inspect.signature(getattr(env, name))
        try:
            signature.bind(*range(expected))
        except TypeError:
            arguments = "(key, params)" if name == "reset" else "(key, state, action, params)"
            raise EnvError(f"{env_id}.{name}{signature} does not take the {expected} arguments {arguments}.") from None
    if not hasattr(env, "default_params"):
        object.__setattr__(env, "default_params", ())  # a frozen dataclass or an equinox module is an environment too
    from_any(env.observation_space, "observation")
    from_any(env.action_space, "action")


def from_object(env: Any, settings: dict[str, Any], preprocessing: Preprocessing | None = None) -> tuple[str, Any]:
    """An id for ``env``, and the environment itself: an environment in JAX, or a class or a function that makes one of either kind.

    The id is no name that finds it again: it stands in angle brackets. Raises ``EnvError`` for what is neither, and for an environment of
    Gymnasium's that is made already, which could be stepped once only.
    """
    name = getattr(env, "__qualname__", type(env).__qualname__)
    env_id = f"<{getattr(env, '__module__', None) or type(env).__module__}.{name}>".replace("<locals>.", "")
    if inspect.isclass(env) or inspect.isroutine(env):
        return env_id, from_class(env, settings, env_id, preprocessing)
    if _steps_by_action(env) or _is_vectorised(type(env)):
        raise EnvError(
            f"{env!r} is an environment that is made already, and several are needed: give its id, its class, or a function that makes "
            "one, as lambda: MyEnv(size=3)."
        )
    if settings:
        raise ConfigError(f"env_settings: {env_id} is made already: give it with its settings.")
    check_protocol(env, env_id)
    return env_id, env
