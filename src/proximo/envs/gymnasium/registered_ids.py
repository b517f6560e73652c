"""Makes environments of Gymnasium's registry by their ids."""

import contextlib
import dataclasses
import importlib
import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from proximo.custom_code import check_module, custom_code_errors, is_missing
from proximo.envs.gymnasium.environment import EXTRAS, GymnasiumEnvironment, construction_errors, from_factory, from_vector
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.hidden_velocities import DROPPED, hide
from proximo.envs.libraries import check_names
from proximo.errors import EnvError, lacking

NAMESPACES = {"ALE": "ale_py", "MiniGrid": "minigrid", "BabyAI": "minigrid", "dm_control": "shimmy", "bsuite": "shimmy"}
"""Libraries that register the ids of a namespace when they are imported."""
QUICK = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")
"""Packages of environments whose steps take less time than a message to a worker."""


def is_registered(env_id: str) -> bool:
    """Whether Gymnasium's registry has ``env_id``.

    The module that registers the id is imported before: ``module`` of ``module:Id``, or the library of a known namespace. Raises
    ``EnvError`` if that library is not installed. The message names the extra to install.
    """
    module, _, name = env_id.rpartition(":")
    if name in gym.registry and not module:
        return True
    namespace = "ALE" if "NoFrameskip" in name else name.partition("/" if "/" in name else "-")[0]
    module = module or NAMESPACES.get(namespace, "")
    if not module:
        return False
    check_module(module)
    try:
        with custom_code_errors(f"Importing {module}"):
            gym.register_envs(importlib.import_module(module))
    except EnvError as error:
        if module in EXTRAS and isinstance(error.__cause__, ImportError):
            raise lacking(env_id, EXTRAS[module]) from None
        if not is_missing(error.__cause__, module):
            raise
        return False
    return name in gym.registry


def names() -> list[str]:
    """Return all ids of the registry, only the newest version of each."""
    newest: dict[tuple[Any, str], Any] = {}
    for spec in sorted(gym.registry.values(), key=lambda spec: spec.version or 0):
        newest[spec.namespace, spec.name] = spec.id
    return sorted(newest.values())


def from_id(
    env_id: str, settings: dict[str, Any], preprocessing: Preprocessing, without_velocities: bool = False
) -> GymnasiumEnvironment:
    """Make an environment of Gymnasium's registry, after ``is_registered`` has imported what registers it, with or without
    its velocities.

    Raises ``EnvError`` if it cannot be made, and ``ConfigError`` if its constructor does not have one of the settings, or it cannot be
    preprocessed this way.
    """
    registered = gym.spec(env_id.rpartition(":")[2])
    code = str(registered.entry_point)
    is_atari = "ale_py" in code
    if settings and registered.entry_point is not None:
        with construction_errors(env_id):
            creator = registered.entry_point if callable(registered.entry_point) else load_env_creator(registered.entry_point)
        parameters = inspect.signature(creator).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            check_names(settings, parameters, env_id)
    # The Atari preprocessing skips frames, so the game must not. It keeps its repeat_action_probability, which acts on single frames.
    frames = {"frameskip": 1} if is_atari and preprocessing.preprocessing == "atari" else {}
    # The specification instead of the id: worker processes have not registered the id.
    make = partial(gym.make, registered, disable_env_checker=True, **{**frames, **settings})
    make_vector = partial(gym.make_vec, registered, vectorization_mode="vector_entry_point", **settings)
    if is_atari:
        make = partial(_without_banner, make)
    elif code.startswith("gymnasium.envs.mujoco"):
        make = partial(_without_deprecation, make)
    if without_velocities:
        make, make_vector = partial(_without_velocities, make, env_id), partial(_without_velocities, make_vector, env_id)
        env_id = env_id.replace("-v", "NoVel-v")
    with construction_errors(env_id):
        if registered.entry_point is None:
            return from_vector(make_vector, env_id, preprocessing)
        env = dataclasses.replace(from_factory(make, env_id, preprocessing), is_quick=code.startswith(QUICK))
    # ALE's vector environment preprocesses frames, so it is another environment: ale:pong.
    if registered.vector_entry_point is not None and not preprocessing.wraps and not is_atari:
        # It may fail, for example for an argument, or a wrapper of the registration, that only single environments have.
        with contextlib.suppress(Exception):
            vector = from_vector(make_vector, env_id, preprocessing)
            if (vector.observation_space, vector.action_space) == (env.observation_space, env.action_space):
                return dataclasses.replace(env, make_vector=vector.make_vector)
    return env


def _without_velocities(make: Callable[..., Any], base: str, *num_envs: int, **rendering: Any) -> Any:
    """Make ``base``, as a vector environment if ``num_envs`` is given, without its velocities."""
    env = make(*num_envs, **rendering)
    if num_envs:  # CartPole, the only such vector environment, keeps its space
        return gym.wrappers.vector.TransformObservation(env, partial(hide, base))
    space = env.observation_space
    if base in DROPPED:
        space = gym.spaces.Box(hide(base, space.low), hide(base, space.high), dtype=space.dtype)
    return gym.wrappers.TransformObservation(env, partial(hide, base), space)


def _without_banner(make: Callable[..., Any], **rendering: Any) -> Any:
    """Make an Atari game without the banner that ALE prints in each process."""
    from ale_py import ALEInterface, LoggerMode

    ALEInterface.setLoggerMode(LoggerMode.Error)
    return make(**rendering)


def _without_deprecation(make: Callable[..., Any], **rendering: Any) -> Any:
    """Make a robot without MuJoCo's warning that HalfCheetah's model uses ``settotalmass``. Others become Python warnings."""
    import mujoco  # pyright: ignore[reportMissingImports]

    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda words: "settotalmass" in words or warnings.warn(words, RuntimeWarning, stacklevel=2))
    try:
        return make(**rendering)
    finally:
        mujoco.set_mju_user_warning(handler)
