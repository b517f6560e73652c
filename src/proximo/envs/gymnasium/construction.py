"""Makes ``GymnasiumEnvironment``s of functions that make single or vector environments."""

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium as gym

from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.action_masks import MaskInObservation, VectorMaskInObservation, mask_size, with_mask
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.gymnasium.stepper import EnvironmentSpec, checked_reset
from proximo.envs.gymnasium.vector_env_adapter import autoreset_of
from proximo.envs.gymnasium.vector_environment import reports_waiting
from proximo.errors import ConfigError, EnvError, lacking
from proximo.spaces import from_any

EXTRAS = {"box2d": "box2d", "pygame": "box2d", "ale_py": "atari", "opencv": "atari", "mujoco": "mujoco", "minigrid": "minigrid"}
"""The extra that installs each module."""


@contextlib.contextmanager
def construction_errors(env_id: str, what: str = "Making") -> Iterator[None]:
    """Convert exceptions of a constructor to ``EnvError``, which names the extra that installs a missing
    library."""
    try:
        with custom_code_errors(f"{what} {env_id}"):
            yield
    except EnvError as error:
        missing = isinstance(error.__cause__, gym.error.DependencyNotInstalled | ModuleNotFoundError)
        extra = next((extra for name, extra in EXTRAS.items() if name in str(error).lower()), None) if missing else None
        if extra is None:
            raise
        raise lacking(env_id, extra) from error


def from_factory(make: Callable[[], Any], env_id: str, preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """The environment of a function ``make()``, or ``make(render_mode=None)``. One instance is made here,
    for its spaces and its action mask.

    Raises ``EnvError`` if it does not follow Gymnasium's interface.
    """
    parameters = inspect.signature(make).parameters
    # A custom class may render without this argument.
    renders = "render_mode" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    factory = partial(_make, make, renders, env_id, preprocessing)
    spec, size, metadata = _example(partial(factory, 0), env_id, preprocessing)
    modes, fps = tuple(metadata.get("render_modes") or ()), float(metadata.get("render_fps") or 0)
    return GymnasiumEnvironment(spec, partial(factory, size), render_modes=modes, render_fps=fps, takes_render_mode=renders)


def _make(
    make: Callable[..., Any], renders: bool, env_id: str, preprocessing: Preprocessing, size: int, render_mode: str | None = None
) -> Any:
    """Make one environment with its preprocessing, and with its mask of ``size`` entries in the observation; 0: none."""
    made = make(render_mode=render_mode) if renders and render_mode is not None else make()
    env = preprocessing.wrap(made, env_id)
    return MaskInObservation(env, size, env_id) if size else env


def from_vector(
    make_vector: Callable[..., Any], env_id: str, preprocessing: Preprocessing, is_threaded: bool = False
) -> GymnasiumEnvironment:
    """The environment of a function ``make_vector(num_envs)``, which makes a Gymnasium ``VectorEnv``. One
    instance is made here, to read its spaces.

    ``is_threaded`` is explained in ``GymnasiumEnvironment``; such an environment has no action mask. Raises
    ``ConfigError`` if the preprocessing needs single environments, and ``EnvError`` if the environment does
    not follow Gymnasium's interface.
    """
    if preprocessing.wraps:
        raise ConfigError(
            f"{env_id} is a vector environment: preprocessing, frame_stack, action_repeat, levels, wrappers, drop_observations and "
            "max_episode_steps need single environments; set its own parameters with --env-settings."
        )
    spec, size, _ = _example(partial(make_vector, 1), env_id, preprocessing, "single_", is_threaded)
    make = (lambda num_envs: VectorMaskInObservation(make_vector(num_envs), size, env_id)) if size else make_vector
    return GymnasiumEnvironment(spec, make_vector=make, is_threaded=is_threaded)


def _example(
    make: Callable[[], Any], env_id: str, preprocessing: Preprocessing, prefix: str = "", is_threaded: bool = False
) -> tuple[EnvironmentSpec, int, dict[str, Any]]:
    """Make one environment, whose spaces have names with ``prefix``, and reset it. Returns what stepping
    needs to know, the entries of its mask if this is not in its observation, and its metadata."""
    limit, lives, info, size = preprocessing.max_episode_steps, preprocessing.life_loss, {}, 0
    with reports_waiting(warnings.warn, 1, env_id), contextlib.closing(make()) as env:
        if prefix:
            autoreset_of(env, env_id)
        spaces = {name: getattr(env, f"{prefix}{name}", None) for name in ("observation_space", "action_space")}
        for name, space in spaces.items():
            if space is None:
                raise EnvError(f"{env_id} has no {name}: define it, for example as gymnasium.spaces.Box or Discrete.")
        if lives or not is_threaded:
            _, info = checked_reset(env, lambda: f"{env_id}.reset", 0)
        if lives and "lives" not in info:
            raise EnvError(f"life_loss = true: {env_id} does not report lives in its info.")
        observation, action = spaces.values()
        if not is_threaded and (size := mask_size(env, info)):
            observation = with_mask(observation, size)
        # Here the spaces are converted, once.
        observation_space, action_space = from_any(observation, "observation"), from_any(action, "action")
        spec = EnvironmentSpec(env_id, observation_space, action_space, limit, checks_actions=bool(prefix), life_loss=lives)
        return spec, size, dict(getattr(env, "metadata", None) or {})
