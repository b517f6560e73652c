"""Environments by Gymnasium's ids, and classes in its interface."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import VectorEnv

from proximo.envs.host.block import PAIR, Rules
from proximo.envs.host.environment import HostEnvironment
from proximo.envs.host.preprocessing import Preprocessing
from proximo.envs.host.waiting import reports_waiting
from proximo.envs.host.wrappers import MaskedVector, MaskFromInfo, VectorWithoutVelocity, WithoutVelocity, flat_mask, mask_rows
from proximo.envs.masked import Mask
from proximo.envs.settings import hold_names
from proximo.errors import ConfigError, EnvError, lacking
from proximo.spaces import ACTION_MASK, from_any
from proximo.users_code import hold_module, users_code

# Libraries that register their ids only when they are imported.
NAMESPACES = {"ALE": "ale_py", "MiniGrid": "minigrid", "BabyAI": "minigrid"}
EXTRAS = {"box2d": "box2d", "pygame": "box2d", "ale_py": "atari", "cv2": "atari", "mujoco": "mujoco", "minigrid": "minigrid"}


@contextlib.contextmanager
def making(env_id: str, what: str = "Making") -> Iterator[None]:
    """While an environment is made: what it raises becomes an ``EnvError``, which names the extra that installs what it lacks."""
    try:
        with users_code(f"{what} {env_id}"):
            yield
    except EnvError as error:
        missing = isinstance(error.__cause__, gym.error.DependencyNotInstalled | ImportError)
        extra = next((extra for name, extra in EXTRAS.items() if name in str(error).lower()), None) if missing else None
        if extra is None:
            raise
        raise lacking(env_id, extra) from error


def is_registered(env_id: str) -> bool:
    """Whether Gymnasium knows ``env_id``. What registers it is imported: ``module`` of ``module:Id``, and the libraries of the
    namespaces that we know; raises ``EnvError`` with the extra to install where such a library is missing."""
    module, _, name = env_id.rpartition(":")
    if name in gym.registry and not module:
        return True
    library = _library_of(name)
    if not (module or library):
        return False
    hold_module(module or library)
    try:
        with users_code(f"Importing {module or library}"):
            gym.register_envs(importlib.import_module(module or library))
    except EnvError as error:
        if not isinstance(error.__cause__, ImportError | ValueError | TypeError):  # no such module, or a name that none can have
            raise
        if (module or library) in EXTRAS:
            raise lacking(env_id, EXTRAS[module or library]) from None
        return False
    return name in gym.registry


def _library_of(name: str) -> str:
    """The library that registers ids like ``ALE/Pong-v5``, ``PongNoFrameskip-v4`` or ``MiniGrid-Empty-5x5-v0``; else nothing."""
    if "NoFrameskip" in name:
        return NAMESPACES["ALE"]
    return NAMESPACES.get(name.partition("/" if "/" in name else "-")[0], "")


def names() -> list[str]:
    """All ids of the registry; only the newest version of each."""
    newest: dict[str, str] = {}
    for env_id, spec in gym.registry.items():
        key = f"{spec.namespace}/{spec.name}"
        if key not in newest or (spec.version or 0) > (gym.registry[newest[key]].version or 0):
            newest[key] = env_id
    return sorted(newest.values())


@dataclass(frozen=True)
class Plain:
    """Makes one environment, with all that is put around it: ``make()``, or ``make(render_mode="rgb_array")`` to look at it. It travels
    to worker processes."""

    make: Callable[..., Any]
    env_id: str
    preprocessing: Preprocessing
    mask_size: int

    def __call__(self, render_mode: str | None = None) -> Any:
        made = self.make() if render_mode is None or not _takes(self.make, "render_mode") else self.make(render_mode=render_mode)
        env = self.preprocessing.wrap(made, self.env_id)
        return MaskFromInfo(env, self.mask_size) if self.mask_size else env


def _takes(make: Callable[..., Any], name: str) -> bool:
    """Whether ``make`` takes the keyword; a class of a user's own need not, and may still render."""
    try:
        parameters = inspect.signature(make).parameters
    except ValueError:  # some built-in types have none
        return False
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def from_id(env_id: str, settings: dict[str, Any], preprocessing: Preprocessing, mask: Mask | None = None) -> HostEnvironment:
    """The environment that Gymnasium has registered as ``env_id``, its velocities hidden by ``mask``. Raises ``EnvError`` when it
    cannot be made."""
    spec = gym.spec(env_id.rpartition(":")[2])
    if preprocessing.preprocessing == "atari" and "ale_py" not in str(spec.entry_point):
        raise ConfigError(f"preprocessing = atari: {env_id} is no Atari game.")
    _hold_arguments(spec, settings, env_id)
    # The specification, not the id: a worker process has not run what registered it.
    make = partial(gym.make, spec, disable_env_checker=True, **{**preprocessing.arguments(), **settings})
    make_vector = partial(_make_vector, spec, settings)
    if mask is not None:
        make, env_id = partial(_make_masked, make, mask), env_id.replace("-v", "NoVel-v")
        make_vector = partial(_make_masked_vector, make_vector, mask)
    vectorises = spec.vector_entry_point is not None and not preprocessing.wraps
    with making(env_id):
        env = from_factory(make, env_id, preprocessing, make_vector if vectorises else None)
        return env if env.make_vector is None or _offers(make_vector, env) else dataclasses.replace(env, make_vector=None)


def _offers(make_vector: Callable[[int], Any], env: HostEnvironment) -> bool:
    """Whether the vectorised form has the spaces of the environment itself: ALE's is another one, with its frames preprocessed."""
    vector = make_vector(1)
    try:
        spaces = (from_any(vector.single_observation_space, "observation"), from_any(vector.single_action_space, "action"))
    finally:
        vector.close()
    return spaces == (env.observation_space, env.action_space)


def _make_masked(make: Callable[..., Any], mask: Mask, **rendering: Any) -> Any:
    return WithoutVelocity(make(**rendering), mask)


def _make_masked_vector(make_vector: Callable[[int], Any], mask: Mask, num_envs: int) -> Any:
    return VectorWithoutVelocity(make_vector(num_envs), mask)


def _hold_arguments(spec: Any, settings: dict[str, Any], env_id: str) -> None:
    """Raise ``ConfigError`` for a setting that the environment's constructor does not take."""
    if not settings or spec.entry_point is None:
        return
    with making(env_id):
        creator = spec.entry_point if callable(spec.entry_point) else load_env_creator(spec.entry_point)
    parameters = inspect.signature(creator).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        hold_names(settings, parameters, env_id)


def _make_vector(spec: Any, settings: dict[str, Any], num_envs: int) -> Any:
    return gym.make_vec(spec, num_envs=num_envs, vectorization_mode="vector_entry_point", **settings)


def from_class(cls: Any, settings: dict[str, Any], env_id: str, preprocessing: Preprocessing) -> HostEnvironment:
    """An environment of a user's own class: a plain one, or one that is vectorised already and takes ``num_envs``."""
    with making(env_id):
        if isinstance(cls, type) and issubclass(cls, VectorEnv):
            return from_vector(partial(_call_with_num_envs, cls, settings), env_id, preprocessing)
        return from_factory(partial(cls, **settings), env_id, preprocessing)


def _call_with_num_envs(cls: Any, settings: dict[str, Any], num_envs: int) -> Any:
    return cls(num_envs=num_envs, **settings)


def from_factory(
    make: Callable[[], Any],
    env_id: str,
    preprocessing: Preprocessing,
    make_vector: Callable[[int], Any] | None = None,
) -> HostEnvironment:
    """The environment that ``make`` makes, looked at once for its spaces and for a mask in its ``info``."""
    with reports_waiting(warnings.warn, 1, env_id):
        env = Plain(make, env_id, preprocessing, 0)()
    try:
        for name in ("observation_space", "action_space"):
            if getattr(env, name, None) is None:
                raise EnvError(f"{env_id} has no {name}: give it one, as gymnasium.spaces.Box or Discrete.")
        _, info = _reset(env, env_id)
        mask_size = flat_mask(info[ACTION_MASK]).size if ACTION_MASK in info else 0
        if preprocessing.life_loss:
            hold_lives(info, env_id)
        seen = MaskFromInfo(env, mask_size) if mask_size else env
        observation_space, action_space = from_any(seen.observation_space, "observation"), from_any(seen.action_space, "action")
        told = dict(getattr(env, "metadata", None) or {})
    finally:
        env.close()
    rules = Rules(env_id, observation_space, preprocessing.max_episode_steps, life_loss=preprocessing.life_loss)
    plain = Plain(make, env_id, preprocessing, mask_size)
    vector = None if mask_size else make_vector
    modes, fps = tuple(told.get("render_modes") or ()), float(told.get("render_fps") or 0)
    return HostEnvironment(env_id, observation_space, action_space, rules, plain, vector, modes, fps)


def _reset(env: Any, env_id: str) -> tuple[Any, dict[str, Any]]:
    """A seeded reset; raises ``EnvError`` where it takes no seed, as before Gymnasium's interface had one."""
    try:
        with reports_waiting(warnings.warn, 1, env_id):
            pair = env.reset(seed=0)
    except TypeError as error:
        if "'seed'" not in str(error):
            raise
        raise EnvError(
            f"{env_id}.reset takes no seed ({error}): write reset(self, *, seed=None, options=None), and begin it with "
            "super().reset(seed=seed)."
        ) from error
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], dict):
        raise EnvError(f"{env_id}.reset returned {type(pair).__name__}: {PAIR}.")
    return pair


def hold_lives(info: dict[str, Any], env_id: str) -> None:
    """Raise ``EnvError`` where a lost life could not be noticed."""
    if "lives" not in info:
        raise EnvError(f"life_loss = true: {env_id} tells no lives in its info.")


def from_vector(
    make_vector: Callable[[int], Any], env_id: str, preprocessing: Preprocessing, may_mask: bool = True
) -> HostEnvironment:
    """An environment that vectorises itself; one that ``may_mask`` is looked at for a mask in its ``info``."""
    if preprocessing.wraps:
        raise ConfigError(
            f"{env_id} vectorises itself: preprocessing, frame_stack, action_repeat, levels and max_episode_steps cannot be put around its "
            "single environments; give its own parameters with --env-settings."
        )
    with reports_waiting(warnings.warn, 1, env_id):
        env = make_vector(1)
    try:
        info = _reset(env, env_id)[1] if may_mask or preprocessing.life_loss else {}
        if preprocessing.life_loss:
            hold_lives(info, env_id)
        size = mask_rows(info).shape[-1] if ACTION_MASK in info else 0
        seen = MaskedVector(env, size) if size else env
        observation_space = from_any(seen.single_observation_space, "observation")
        action_space = from_any(seen.single_action_space, "action")
    finally:
        env.close()
    rules = Rules(env_id, observation_space, holds_actions=True, life_loss=preprocessing.life_loss)

    def make_masked(num_envs: int) -> Any:
        return MaskedVector(make_vector(num_envs), size)

    return HostEnvironment(env_id, observation_space, action_space, rules, None, make_masked if size else make_vector)
