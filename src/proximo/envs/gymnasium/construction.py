"""Makes ``GymnasiumEnvironment``s of functions that make single or vector environments."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym

from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.action_masks import MaskInObservation, MaskSource, VectorMaskInObservation, find_mask
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
    """Convert exceptions of a constructor to ``EnvError``, which names the extra that installs a missing library."""
    try:
        with custom_code_errors(f"{what} {env_id}"):
            yield
    except EnvError as error:
        missing = isinstance(error.__cause__, gym.error.DependencyNotInstalled | ModuleNotFoundError)
        extra = next((extra for name, extra in EXTRAS.items() if name in str(error).lower()), None) if missing else None
        if extra is None:
            raise
        raise lacking(env_id, extra) from error


@dataclass(frozen=True)
class EnvironmentFactory:
    """Makes one environment with its preprocessing. It is pickled for worker processes."""

    make: Callable[..., Any]
    env_id: str
    preprocessing: Preprocessing
    mask: MaskSource | None = None

    @property
    def takes_render_mode(self) -> bool:
        """Whether the environment can be made in a ``render_mode``. A custom class may render without it."""
        parameters = inspect.signature(self.make).parameters
        return "render_mode" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    def __call__(self, render_mode: str | None = None) -> Any:
        made = self.make(render_mode=render_mode) if render_mode is not None and self.takes_render_mode else self.make()
        env = self.preprocessing.wrap(made, self.env_id)
        return env if self.mask is None else MaskInObservation(env, self.mask)


def from_factory(make: Callable[[], Any], env_id: str, preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """Make the environment of a function. One instance is made here, for its spaces and its action mask.

    Args:
        make: makes a single environment; optionally with the argument ``render_mode``.
        env_id: id of the environment, for messages.
        preprocessing: wrappers and time limit.

    Raises:
        EnvError: The environment does not follow Gymnasium's interface.
    """
    factory = EnvironmentFactory(make, env_id, preprocessing)
    with _example(factory, env_id) as env:
        for name in ("observation_space", "action_space"):
            if getattr(env, name, None) is None:
                raise EnvError(f"{env_id} has no {name}: define it, for example as gymnasium.spaces.Box or Discrete.")
        mask = find_mask(env, _first_info(env, env_id, preprocessing), env_id)
        spec = _spec(env.observation_space, env.action_space, mask, env_id, preprocessing)
        metadata = dict(getattr(env, "metadata", None) or {})
    factory = dataclasses.replace(factory, mask=mask)
    modes, fps = tuple(metadata.get("render_modes") or ()), float(metadata.get("render_fps") or 0)
    return GymnasiumEnvironment.of(spec, make=factory, render_modes=modes, render_fps=fps)


def from_vector(
    make_vector: Callable[..., Any], env_id: str, preprocessing: Preprocessing, is_threaded: bool = False
) -> GymnasiumEnvironment:
    """Make the environment of a Gymnasium ``VectorEnv``. One instance is made here, to read its spaces.

    Args:
        make_vector: makes a ``VectorEnv`` of a given number of environments.
        env_id: id of the environment, for messages.
        preprocessing: only ``life_loss`` is supported.
        is_threaded: as in ``GymnasiumEnvironment``; such an environment has no action mask.

    Raises:
        ConfigError: The preprocessing needs single environments.
        EnvError: The environment does not follow Gymnasium's interface.
    """
    if preprocessing.wraps:
        raise ConfigError(
            f"{env_id} is a vector environment: preprocessing, frame_stack, action_repeat, levels, wrappers, drop_observations and "
            "max_episode_steps need single environments; set its own parameters with --env-settings."
        )
    with _example(partial(make_vector, 1), env_id) as env:
        autoreset_of(env, env_id)
        info = {} if is_threaded and not preprocessing.life_loss else _first_info(env, env_id, preprocessing)
        mask = None if is_threaded else find_mask(env, info, env_id)
        spec = _spec(env.single_observation_space, env.single_action_space, mask, env_id, preprocessing, checks_actions=True)
    make = make_vector if mask is None else lambda num_envs: VectorMaskInObservation(make_vector(num_envs), mask)
    return GymnasiumEnvironment.of(spec, make_vector=make, is_threaded=is_threaded)


@contextlib.contextmanager
def _example(make: Callable[[], Any], env_id: str) -> Iterator[Any]:
    """An environment that is closed afterwards."""
    with reports_waiting(warnings.warn, 1, env_id):
        env = make()
    with contextlib.closing(env):
        yield env


def _spec(
    observation: Any,
    action: Any,
    mask: MaskSource | None,
    env_id: str,
    preprocessing: Preprocessing,
    checks_actions: bool = False,
) -> EnvironmentSpec:
    """What stepping needs to know. Here the spaces are converted, once."""
    observed = from_any(observation if mask is None else mask.with_mask(observation), "observation")
    limit, lives = preprocessing.max_episode_steps, preprocessing.life_loss
    return EnvironmentSpec(env_id, observed, from_any(action, "action"), limit, checks_actions, lives)


def _first_info(env: Any, env_id: str, preprocessing: Preprocessing) -> dict[str, Any]:
    """The ``info`` of a reset. Raises ``EnvError`` if lives are needed and missing."""
    with reports_waiting(warnings.warn, 1, env_id):
        _, info = checked_reset(env, f"{env_id}.reset", 0)
    if preprocessing.life_loss and "lives" not in info:
        raise EnvError(f"life_loss = true: {env_id} does not report lives in its info.")
    return info
