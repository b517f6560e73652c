"""Finds and makes custom environments, and recognizes whether they are JAX or Gymnasium environments."""

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from proximo.custom_code import exception_text, find_module, is_users_function
from proximo.envs.agent_inputs import with_agent_inputs
from proximo.envs.gymnasium.action_masks import layers
from proximo.envs.gymnasium.environment import GymnasiumEnvironment, construction_errors, from_factory, from_vector
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.gymnasium.supersuit import adapted
from proximo.envs.level_seeds import with_levels
from proximo.envs.libraries import LIBRARIES, JaxWrapper, check_names, is_installed, names
from proximo.envs.randomization import with_randomization
from proximo.envs.unknown_ids import unknown
from proximo.errors import ConfigError, EnvError, closest, nearest
from proximo.spaces import from_any

PROTOCOL = "(proximo.envs.protocol defines the protocol)"
PLAIN = Preprocessing()


def find(module_name: str, class_name: str, from_file: bool = False) -> Any:
    """Find the class of an environment in a module, or a function that makes one. Raises ``EnvError`` if there is
    none, or if it is a function of an installed library that a file names (``from_file``)."""
    env_id = f"{module_name}:{class_name}"
    if (module := find_module(module_name)) is None:
        library = closest(module_name, LIBRARIES, 0.75)
        has = bool(library) and (not is_installed(library) or class_name in names(library))
        raise unknown(env_id, [f"{library}:{class_name}"] if has else [])
    if (cls := getattr(module, class_name, None)) is None:
        classes = [n for n, value in vars(module).items() if inspect.isclass(value)]
        raise EnvError(f"Module {module_name!r} has no class {class_name!r}{nearest(class_name, classes)}.")
    # Checked before the call: the settings of a downloaded run must not call arbitrary functions.
    if is_users_function(cls, or_of_library=not from_file):
        return cls
    if is_users_function(cls, or_of_library=True):
        raise EnvError(
            f"{env_id!r} is a function of an installed library. A file such as config.yaml cannot choose such a function, "
            "because it could call anything. Give it again, as the environment of `proximo train`, as --env or --eval-env, or "
            "in Python as env=… or eval_env=…; or train on a function of your own module that calls it."
        )
    missing = [name for name in ("reset", "step") if not callable(getattr(cls, name, None))]
    if inspect.isclass(cls) and not missing:
        return cls
    found = f"a class without {' and '.join(missing)}" if inspect.isclass(cls) else type(cls).__name__
    raise EnvError(
        f"{env_id!r} is {found}: expected the class of a JAX or Gymnasium environment {PROTOCOL}, or a function that makes one."
    )


def from_class(cls: Any, settings: dict[str, Any], env_id: str, preprocessing: Preprocessing = PLAIN) -> Any:
    """Make the environment of a class of any kind, or of a function; one that makes a ``VectorEnv`` takes ``num_envs``.
    Raises ``EnvError`` for anything else, and ``ConfigError`` for unknown ``settings``."""
    is_class = inspect.isclass(cls)
    signature = inspect.signature(cls)
    if all(p.kind is not p.VAR_KEYWORD for p in signature.parameters.values()):
        check_names(settings, signature.parameters, env_id)
    takes_num_envs = is_vectorized(cls) or ("num_envs" in signature.parameters and not is_class)
    try:
        signature.bind(**settings, **({"num_envs": 1} if takes_num_envs else {}))
    except TypeError as error:
        way = (
            "add this argument to the VectorEnv"
            if "num_envs" in str(error)
            else "set it with --env-settings, or give it a default"
        )
        if is_class and issubclass(cls, gym.Wrapper):
            way = f"give a wrapper as --wrapper {env_id}"
        raise EnvError(f"{env_id} cannot be made: {error}; {way}.") from error
    make = functools.partial(cls, **settings)
    with construction_errors(env_id):
        if takes_num_envs:
            return from_vector(functools.partial(_vector_env_of, make, env_id), env_id, preprocessing)
        if not (is_class and issubclass(cls, gym.Env)):
            one = make()
            if isinstance(one, VectorEnv):
                raise EnvError(
                    f"{env_id} returned a vector environment: give it an argument num_envs, as lambda num_envs: MyVectorEnv(num_envs)."
                )
            if not _steps_by_action(one):
                return as_jax_environment(one, env_id)
            made = [one] if is_class else [one, make()]
            _check_distinct(made, env_id)
            for env in made:
                getattr(env, "close", lambda: None)()
        return from_factory(make, env_id, preprocessing)


def _vector_env_of(make: Callable[..., Any], env_id: str, num_envs: int) -> Any:
    made = make(num_envs=num_envs)
    env = adapted(made)
    slots = getattr(env, "num_envs", num_envs)
    # The slots of SuperSuit are agents.
    if not isinstance(env, VectorEnv) or (slots != num_envs if env is made else slots % num_envs):
        raise EnvError(
            f"{env_id} returned {env} for num_envs = {num_envs}: expected a gymnasium.vector.VectorEnv of {num_envs} environments, as "
            "lambda num_envs: MyVectorEnv(num_envs)."
        )
    return env


def innermost(env: Any) -> Any:
    """The environment inside all wrappers."""
    return list(layers(env))[-1]


def _check_distinct(envs: Sequence[Any], env_id: str) -> None:
    """Raise ``EnvError`` if two of ``envs`` are the same object inside all wrappers."""
    if len({id(innermost(env)) for env in envs}) < len(envs):
        raise EnvError(
            f"{env_id} returned the same environment twice, but every environment of a training must be an object of its own: create it "
            "inside the function, for example lambda: MyEnv(size=3)."
        )


def _from_instance(env: Any, env_id: str, preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """Make environments like ``env``, which is copied, or a ``VectorEnv`` that is made again."""
    if isinstance(env, VectorEnv):
        return from_vector(_vector_envs_like(env, env_id), env_id, preprocessing)
    if getattr(env, "render_mode", None) == "human":
        raise EnvError(
            f"{env_id} has render_mode = 'human', so every environment of the training would open a window: make it without render_mode. "
            "`proximo watch` shows the trained policy."
        )
    try:
        original = copy.deepcopy(env)
    except Exception as error:
        raise EnvError(
            f"{env_id} is an instance that cannot be copied ({exception_text(error)}), and training and evaluation need several "
            "environments: pass its id, its class, or a function that makes one, for example lambda: MyEnv(size=3)."
        ) from error
    _check_distinct((env, original), env_id)
    return from_factory(functools.partial(_copy_of, original), env_id, preprocessing)


def _vector_envs_like(env: Any, env_id: str) -> Callable[[int], VectorEnv]:
    """A function that makes vector environments like ``env`` with any number of environments."""
    if env.spec is not None and env.unwrapped is env:
        spec = copy.deepcopy(env.spec)
        spec.kwargs.pop("num_envs", None)
        return lambda num_envs: gym.make_vec(spec, num_envs=num_envs)
    if type(env) in (SyncVectorEnv, AsyncVectorEnv):
        _check_distinct(getattr(env, "envs", ()), env_id)
        functions, mode = list(env.env_fns), env.metadata["autoreset_mode"]
        return lambda num_envs: type(env)([functions[i % len(functions)] for i in range(num_envs)], autoreset_mode=mode)
    raise EnvError(
        f"{env_id} is a vector environment of {env.num_envs} environments, and evaluation needs other numbers of them: pass a "
        "function that makes one, for example lambda num_envs: MyVectorEnv(num_envs)."
    )


def _copy_of(original: Any, render_mode: str | None = None) -> Any:
    made = copy.deepcopy(original)
    if render_mode is not None:  # most environments read it only when they draw
        with contextlib.suppress(AttributeError):  # a property
            made.unwrapped.render_mode = render_mode
    return made


def is_vectorized(cls: Any) -> bool:
    """Whether ``cls`` is a class of Gymnasium's vector environments."""
    return inspect.isclass(cls) and issubclass(cls, VectorEnv)


def _steps_by_action(env: Any) -> bool:
    """Whether ``env.step`` takes only an action, as in Gymnasium. A base class is not required."""
    if isinstance(env, gym.Env):
        return True
    if not callable(getattr(env, "step", None)) or not hasattr(env, "reset"):
        return False
    parameters = inspect.signature(env.step).parameters.values()
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) == 1


class CustomJaxEnvironment(JaxWrapper):
    """A custom JAX environment that has spaces of another library, or no parameters."""

    def __init__(self, env: Any):
        super().__init__(env)
        self.observation_space = from_any(env.observation_space, "observation")
        self.action_space = from_any(env.action_space, "action")


def as_jax_environment(env: Any, env_id: str) -> Any:
    """``env`` with spaces of proximo, and parameters. Raises ``EnvError`` if it lacks a part of the protocol."""
    parts = ("observation_space", "action_space", "reset", "step")
    if missing := [name for name in parts if not hasattr(env, name)]:
        what = "None" if env is None else "neither a JAX nor a Gymnasium environment"
        raise EnvError(f"{env_id} is {what}: it lacks {', '.join(missing)} {PROTOCOL}.")
    for name, arguments in (("reset", ("key", "params")), ("step", ("key", "state", "action", "params"))):
        try:
            inspect.signature(getattr(env, name)).bind(*arguments)
        except TypeError:
            expected = f"the {len(arguments)} arguments ({', '.join(arguments)})"
            raise EnvError(f"{env_id}.{name}{inspect.signature(getattr(env, name))} does not accept {expected}.") from None
    adapted = CustomJaxEnvironment(env)
    is_same = (adapted.observation_space, adapted.action_space) == (env.observation_space, env.action_space)
    return env if is_same and hasattr(env, "default_params") else adapted


def makes_environments(env: Any) -> bool:
    """Whether ``env`` is a class or a function, which takes settings, and no environment."""
    return inspect.isclass(env) or (callable(env) and not hasattr(env, "reset"))


def from_object(env: Any, settings: dict[str, Any], preprocessing: Preprocessing = PLAIN) -> tuple[str, Any]:
    """Make an environment from one of any kind, which stays as it is, or from a class or a function.

    Returns an id in angle brackets, which no command can find again, and the environment. Raises ``EnvError`` if it
    cannot be made or copied, and ``ConfigError`` for ``settings`` that do not fit, or of an instance.
    """
    named = env if hasattr(env, "__qualname__") else type(getattr(env, "unwrapped", env))
    env_id = f"<{named.__module__}.{named.__qualname__}>".replace("<locals>.", "")
    if makes_environments(env):
        made = from_class(env, settings, env_id, preprocessing)
    elif settings:
        raise ConfigError(f"env_settings: {env_id} is an instance: pass the settings to its constructor.")
    elif is_vectorized(type(env)) or _steps_by_action(env):
        with construction_errors(env_id):
            made = _from_instance(env, env_id, preprocessing)
    else:
        made = as_jax_environment(env, env_id)
    return env_id, with_settings(made, env_id, preprocessing)


def with_settings(env: Any, env_id: str, preprocessing: Preprocessing) -> Any:
    """A JAX environment as ``preprocessing`` changes it. Gymnasium environments are wrapped one by one."""
    env = with_levels(with_randomization(env, preprocessing.randomize, env_id), preprocessing.levels)
    return with_agent_inputs(env, env_id, preprocessing.agent_id, preprocessing.needs_state)
