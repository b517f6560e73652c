"""Makes environments of Gymnasium's registry by their ids."""

import contextlib
import dataclasses
import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from proximo.custom_code import find_module
from proximo.envs.gymnasium.environment import EXTRAS, GymnasiumEnvironment, construction_errors, from_factory, from_vector
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.hidden_velocities import BASES, DROPPED, hide
from proximo.envs.libraries import check_names
from proximo.errors import lacking

NAMESPACES = {"ALE": "ale_py", "MiniGrid": "minigrid", "BabyAI": "minigrid", "dm_control": "shimmy", "bsuite": "shimmy"}
"""Libraries that register the ids of a namespace when they are imported."""
QUICK = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")
"""Packages of environments whose steps take less time than a message to a worker."""


def is_registered(env_id: str) -> bool:
    """Whether Gymnasium's registry has ``env_id``, perhaps with its velocities.

    The module that registers the id is imported before: ``module`` of ``module:Id``, or the library of a known namespace. Raises
    ``EnvError`` if that library is not installed. The message names the extra to install.
    """
    module, _, name = env_id.rpartition(":")
    if not module and (name in gym.registry or name in BASES):
        return True
    namespace = "ALE" if "NoFrameskip" in name else name.partition("/" if "/" in name else "-")[0]
    module = module or NAMESPACES.get(namespace, "")
    found = find_module(module) if module else None
    if found is None and module in EXTRAS:
        raise lacking(env_id, EXTRAS[module])
    return found is not None and name in gym.registry


def names() -> list[str]:
    """Return all ids of the registry, only the newest version of each, and those with hidden velocities."""
    newest: dict[tuple[Any, str], Any] = {}
    for spec in sorted(gym.registry.values(), key=lambda spec: spec.version or 0):
        newest[spec.namespace, spec.name] = spec.id
    return [*sorted(newest.values()), *BASES]


def from_id(env_id: str, settings: dict[str, Any], preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """Make an environment of Gymnasium's registry, after ``is_registered`` has imported what registers it.

    Raises ``EnvError`` if it cannot be made, and ``ConfigError`` if its constructor does not have one of the settings, or it cannot be
    preprocessed this way.
    """
    base = None if env_id in gym.registry else BASES.get(env_id)
    registered = gym.spec(base or env_id.rpartition(":")[2])
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
    make = partial(_quietly, code, gym.make, registered, disable_env_checker=True, **{**frames, **settings})
    make_vector = partial(gym.make_vec, registered, vectorization_mode="vector_entry_point", **settings)
    if base:
        make, make_vector = partial(_without_velocities, make, base), partial(_without_velocities, make_vector, base)
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


def _quietly(code: str, make: Callable[..., Any], /, *arguments: Any, **settings: Any) -> Any:
    """Make an environment of ``code`` without the banner that ALE prints in each process, and without MuJoCo's
    warning that HalfCheetah's model uses ``settotalmass``. MuJoCo's other warnings become Python warnings."""
    if "ale_py" in code:
        from ale_py import ALEInterface, LoggerMode

        ALEInterface.setLoggerMode(LoggerMode.Error)
    if not code.startswith("gymnasium.envs.mujoco"):
        return make(*arguments, **settings)
    import mujoco  # pyright: ignore[reportMissingImports]

    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda words: "settotalmass" in words or warnings.warn(words, RuntimeWarning, stacklevel=2))
    try:
        return make(*arguments, **settings)
    finally:
        mujoco.set_mju_user_warning(handler)
