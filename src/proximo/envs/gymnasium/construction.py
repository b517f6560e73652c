"""Makes ``GymnasiumEnvironment``s from classes, functions, objects and vector environments.

An adapter to a library uses ``from_factory`` for single environments, or ``from_vector`` for a vector environment.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium import instances
from proximo.envs.gymnasium.action_masks import (
    MaskInObservation,
    MaskSource,
    VectorMaskInObservation,
    find_mask,
    find_vector_mask,
)
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.gymnasium.stepper import PAIR, EnvironmentSpec
from proximo.envs.gymnasium.waiting_messages import reports_waiting
from proximo.errors import ConfigError, EnvError, lacking
from proximo.spaces import from_any, mask_sizes

AUTO_THREADS = 0
"""``num_threads`` with which EnvPool and ALE choose the number."""
EXTRAS = {"box2d": "box2d", "pygame": "box2d", "ale_py": "atari", "cv2": "atari", "mujoco": "mujoco", "minigrid": "minigrid"}
"""The extra that installs each module."""


@contextlib.contextmanager
def construction_errors(env_id: str, what: str = "Making") -> Iterator[None]:
    """Convert exceptions of an environment's constructor to ``EnvError``. It names the extra that installs a missing library."""
    try:
        with custom_code_errors(f"{what} {env_id}"):
            yield
    except EnvError as error:
        missing = isinstance(error.__cause__, gym.error.DependencyNotInstalled | ImportError)
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
    mask: MaskSource | None

    @property
    def takes_render_mode(self) -> bool:
        """Whether the environment can be made in a ``render_mode``."""
        return _takes(self.make, "render_mode")

    def __call__(self, render_mode: str | None = None) -> Any:
        made = self.make() if render_mode is None or not self.takes_render_mode else self.make(render_mode=render_mode)
        env = self.preprocessing.wrap(made, self.env_id)
        return env if self.mask is None else MaskInObservation(env, self.mask)


def _takes(make: Callable[..., Any], name: str) -> bool:
    """Whether ``make`` accepts the keyword ``name``. A custom class may render without ``render_mode``."""
    try:
        parameters = inspect.signature(make).parameters
    except ValueError:  # some built-in types have no signature
        return False
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def from_class(
    cls: Any,
    settings: dict[str, Any],
    env_id: str,
    preprocessing: Preprocessing,
    takes_num_envs: bool = False,
    made: Sequence[Any] = (),
) -> GymnasiumEnvironment:
    """Make an environment of a custom class or function: a single environment, or a ``VectorEnv`` if it takes the argument ``num_envs``.
    ``made`` is what it has returned before, which is closed."""
    make = partial(cls, **settings)
    with construction_errors(env_id):
        if takes_num_envs:
            return from_vector(partial(_vector_env_of, make, env_id, []), env_id, preprocessing)
        if made and isinstance(made[0], VectorEnv):
            raise EnvError(
                f"{env_id} returned a vector environment: give it an argument num_envs, as lambda num_envs: MyVectorEnv(num_envs)."
            )
        if not inspect.isclass(cls):
            made = [*made, make()]
            instances.check_distinct(made, env_id)
        for env in made:
            getattr(env, "close", lambda: None)()
        return from_factory(make, env_id, preprocessing)


def _vector_env_of(make: Callable[..., Any], env_id: str, before: list[weakref.ref], num_envs: int) -> Any:
    """A new ``VectorEnv`` of ``num_envs`` environments. ``before`` has those that ``make`` returned before."""
    env = make(num_envs=num_envs)
    if not isinstance(env, VectorEnv):
        raise EnvError(
            f"{env_id} takes num_envs, but returned {type(env).__name__}: expected a gymnasium.vector.VectorEnv of num_envs environments. "
            "A function that makes a single environment has no such argument."
        )
    if (count := getattr(env, "num_envs", num_envs)) != num_envs:
        raise EnvError(
            f"{env_id} returned {count} environments for num_envs = {num_envs}: create the vector environment with that number, as "
            "lambda num_envs: MyVectorEnv(num_envs)."
        )
    instances.check_distinct([env, *(made for ref in before if (made := ref()) is not None)], env_id)
    before.append(weakref.ref(env))
    return env


def from_instance(env: Any, env_id: str, preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """Make an environment of which ``env``, a single environment or a ``VectorEnv``, is one. It is copied, and stays as it is."""
    with construction_errors(env_id):
        if isinstance(env, VectorEnv):
            return from_vector(instances.vector_copies(env, env_id), env_id, preprocessing)
        return from_factory(instances.copies(env, env_id), env_id, preprocessing)


def from_factory(
    make: Callable[[], Any],
    env_id: str,
    preprocessing: Preprocessing,
    make_vector: Callable[[int], Any] | None = None,
) -> GymnasiumEnvironment:
    """Make the environment of a function. One instance is made here, to read its spaces and to find its action mask.

    Args:
        make: makes a single environment; optionally with the argument ``render_mode``.
        env_id: id of the environment, for messages.
        preprocessing: wrappers and time limit.
        make_vector: makes a ``VectorEnv`` of the same environment, if there is one.

    Raises:
        EnvError: The environment does not follow Gymnasium's interface.
    """
    with reports_waiting(warnings.warn, 1, env_id):
        env = EnvironmentFactory(make, env_id, preprocessing, None)()
    try:
        for name in ("observation_space", "action_space"):
            if getattr(env, name, None) is None:
                raise EnvError(f"{env_id} has no {name}: define it, for example as gymnasium.spaces.Box or Discrete.")
        _, info = _reset(env, env_id)
        mask = find_mask(env, info, env_id)
        if preprocessing.life_loss:
            check_lives(info, env_id)
        seen = env if mask is None else MaskInObservation(env, mask)
        observation_space, action_space = from_any(seen.observation_space, "observation"), from_any(seen.action_space, "action")
        metadata = dict(getattr(env, "metadata", None) or {})
    finally:
        env.close()
    spec = EnvironmentSpec(
        env_id,
        observation_space,
        preprocessing.max_episode_steps,
        life_loss=preprocessing.life_loss,
        mask_sizes=mask_sizes(action_space),
    )
    factory = EnvironmentFactory(make, env_id, preprocessing, mask)
    vector = make_vector if mask is None else None
    modes, fps = tuple(metadata.get("render_modes") or ()), float(metadata.get("render_fps") or 0)
    return GymnasiumEnvironment(
        env_id, observation_space, action_space, spec, factory, vector, render_modes=modes, render_fps=fps
    )


def _reset(env: Any, env_id: str) -> tuple[Any, dict[str, Any]]:
    """Reset with a seed. Raises ``EnvError`` if ``reset`` does not accept ``seed``, as in old Gym, or ``options``, which some wrappers pass."""
    try:
        with reports_waiting(warnings.warn, 1, env_id):
            pair = env.reset(seed=0)
    except TypeError as error:
        lacking = next((words for name, words in (("seed", "a seed"), ("options", "options")) if f"'{name}'" in str(error)), None)
        if lacking is None:
            raise
        raise EnvError(
            f"{env_id}.reset does not accept {lacking} ({error}): define reset(self, *, seed=None, options=None), and call "
            "super().reset(seed=seed) in it."
        ) from error
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], dict):
        raise EnvError(f"{env_id}.reset returned {type(pair).__name__}: {PAIR}.")
    return pair


def check_lives(info: dict[str, Any], env_id: str) -> None:
    """Raise ``EnvError`` if ``info`` does not report lives."""
    if "lives" not in info:
        raise EnvError(f"life_loss = true: {env_id} does not report lives in its info.")


def from_vector(
    make_vector: Callable[[int], Any],
    env_id: str,
    preprocessing: Preprocessing,
    may_mask: bool = True,
    make_threaded: Callable[[int, int], Any] | None = None,
) -> GymnasiumEnvironment:
    """Make the environment of a Gymnasium ``VectorEnv``. One instance is made here, to read its spaces.

    Args:
        make_vector: makes a ``VectorEnv`` of a given number of environments.
        env_id: id of the environment, for messages.
        preprocessing: only ``life_loss`` is supported.
        may_mask: reset the instance to find its action mask.
        make_threaded: as ``GymnasiumEnvironment.make_threaded``; not used with an action mask.

    Raises:
        ConfigError: The preprocessing needs single environments.
        EnvError: The environment does not follow Gymnasium's interface.
    """
    if preprocessing.wraps:
        raise ConfigError(
            f"{env_id} is a vector environment: preprocessing, frame_stack, action_repeat, levels, wrappers, drop_observations and "
            "max_episode_steps need single environments; set its own parameters with --env-settings."
        )
    with reports_waiting(warnings.warn, 1, env_id):
        env = make_vector(1)
    try:
        info = _reset(env, env_id)[1] if may_mask or preprocessing.life_loss else {}
        if preprocessing.life_loss:
            check_lives(info, env_id)
        mask = find_vector_mask(env, info, env_id) if may_mask else None
        seen = env if mask is None else VectorMaskInObservation(env, mask)
        observation_space = from_any(seen.single_observation_space, "observation")
        action_space = from_any(seen.single_action_space, "action")
    finally:
        env.close()
    spec = EnvironmentSpec(
        env_id, observation_space, checks_actions=True, life_loss=preprocessing.life_loss, mask_sizes=mask_sizes(action_space)
    )

    def make(num_envs: int) -> Any:
        made = make_vector(num_envs)
        return made if mask is None else VectorMaskInObservation(made, mask)

    return GymnasiumEnvironment(
        env_id, observation_space, action_space, spec, None, make, make_threaded if mask is None else None
    )
