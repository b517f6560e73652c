"""The settings that preprocess a Gymnasium environment, and the wrappers that they add. Gymnasium's own wrappers are used where they exist."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from proximo.custom_code import custom_code_errors, imported
from proximo.envs.gymnasium.action_masks import mask_reader
from proximo.envs.gymnasium.transition_checks import check_observation, check_step, make_quick_check
from proximo.envs.level_seeds import LevelRange
from proximo.envs.randomization import Randomization
from proximo.errors import ConfigError, shown
from proximo.spaces import allows, from_any, leaves


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of an environment. All fields but ``needs_state`` are settings of ``env``, which ``config/schema.py`` explains."""

    preprocessing: Literal["none", "atari"] = "none"
    frame_stack: int = 1
    action_repeat: int = 1
    max_episode_steps: int = 0
    levels: str = ""
    wrappers: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Names and arguments of custom wrappers; the first is the innermost."""
    drop_observations: tuple[str, ...] = ()
    life_loss: bool = False
    randomize: Callable[..., Any] | None = None
    agent_id: bool = False
    needs_state: bool = False
    """Whether the observation of each of several agents gets the entry ``state``, because the setting ``privileged`` names it."""

    @property
    def wraps(self) -> bool:
        """Whether single environments must be wrapped, so that a vector environment cannot be used."""
        return self != Preprocessing(life_loss=self.life_loss, needs_state=self.needs_state)

    def wrap(self, env: Any, env_id: str) -> Any:
        """Add the wrappers that these settings require to ``env``."""
        env = env if isinstance(env, gym.Env) else WithBaseClass(env)
        env = env if self.randomize is None else Randomization(env, self.randomize)
        for name, arguments in self.wrappers:
            env = custom(env, name, arguments)
        if self.drop_observations:
            env = DropObservations(env, env_id, self.drop_observations)
        if self.preprocessing == "atari":
            if not hasattr(env.unwrapped, "ale"):
                raise ConfigError(f"preprocessing = atari: {env_id} is not an Atari game.")
            if len(env.observation_space.shape) == 1:
                raise ConfigError(
                    f"preprocessing = atari: {env_id} observes the memory of the game (obs_type): set preprocessing = none."
                )
            # The standard one (Mnih et al. 2015; Machado et al. 2018): 84×84 gray images, each the maximum of the last two of 4 frames.
            env = gym.wrappers.AtariPreprocessing(env, noop_max=30, frame_skip=4, screen_size=84)
        if self.action_repeat > 1:
            env = ActionRepeat(env, self.action_repeat)
        if self.frame_stack > 1:
            env = gym.wrappers.FrameStackObservation(copied(env, env_id), self.frame_stack, padding_type="reset")
        return Levels(env, LevelRange.parse(self.levels)) if self.levels else env


def copied(env: Any, env_id: str) -> Any:
    """Check and copy each observation, in the type of its space, before frames are stacked: Gymnasium's buffer converts silently, and an
    environment may write its next observation into the same array."""
    space = env.observation_space
    if not isinstance(space, gym.spaces.Box):
        raise ConfigError(f"frame_stack: the observations of {env_id} are {space}: expected a Box.")
    expected = leaves(from_any(space, "observation"))
    fits = make_quick_check(expected)

    def stored(observation: Any) -> np.ndarray:
        if not fits(observation):
            check_observation(observation, expected, lambda: env_id)
        return np.array(observation, space.dtype)

    return gym.wrappers.TransformObservation(env, stored, space)


class Levels(gym.Wrapper):
    """Draws the seed of each episode from a range of levels. The seed passed to ``reset`` seeds the draws."""

    def __init__(self, env: Any, levels: LevelRange):
        super().__init__(env)
        self.levels, self.draws = levels, levels.draws()

    def reset(self, *, seed=None, **arguments):
        self.draws = self.draws if seed is None else self.levels.draws(seed)
        return self.env.reset(seed=next(self.draws), **arguments)


class ActionRepeat(gym.Wrapper):
    """Takes each action ``times`` times and sums the rewards.

    It stops early if the episode ends or the mask forbids the action; the policy then chooses another one.
    """

    def __init__(self, env: Any, times: int):
        super().__init__(env)
        self.times, self.read_mask, self.space = times, mask_reader(env), from_any(env.action_space, "action")

    def step(self, action):
        total = 0.0
        for _ in range(self.times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            check_step(reward, terminated, truncated, info, lambda: "a repeated step")
            total += float(reward)
            mask = self.read_mask(observation, info)
            if terminated or truncated or (mask is not None and not allows(self.space, mask, action)):
                break
        return observation, total, terminated, truncated, info


def custom(env: Any, name: str, arguments: dict[str, Any]) -> Any:
    """Add the user's wrapper ``name``, as ``my_package.module:MyWrapper``. Raises ``ConfigError`` if it is not a subclass of ``gymnasium.Wrapper``,
    which is checked before anything is called, or cannot be made."""
    cls = imported(name, f"wrappers = {name}")
    if not inspect.isclass(cls) or not issubclass(cls, gym.Wrapper):
        raise ConfigError(f"wrappers = {name}: expected a subclass of gymnasium.Wrapper.")
    signature = inspect.signature(cls)
    # A file and a command line have lists, but no arrays.
    arrays = {key for key, parameter in signature.parameters.items() if "ndarray" in str(parameter)}
    with custom_code_errors(f"wrappers = {name}, which is {cls.__qualname__}{signature},", ConfigError):
        return cls(env, **{key: np.array(value) if key in arrays else value for key, value in arguments.items()})


class DropObservations(gym.ObservationWrapper):
    """Leaves out entries of Dict and Tuple observations. ``camera.label`` names an entry of the entry ``camera``."""

    def __init__(self, env: Any, env_id: str, names: tuple[str, ...]):
        super().__init__(env)
        self.names, space = names, env.observation_space
        for name in names:
            if _without(space, (name,)) == space:
                raise ConfigError(f"drop_observations = {name}: {env_id} has no such observation: {shown(space)}.")
        self.observation_space = _without(space, names)

    def observation(self, observation):
        return _without(observation, self.names)


def _without(value: Any, names: tuple[str, ...], where: str = "") -> Any:
    """A space, or an observation, without the entries ``names``."""
    is_dict = isinstance(value, Mapping)
    if not is_dict and not isinstance(value, tuple | gym.spaces.Tuple):
        return value
    entries = [(key, part, f"{where}{key}") for key, part in (value.items() if is_dict else enumerate(value))]
    kept: dict[Any, Any] = {key: _without(part, names, f"{name}.") for key, part, name in entries if name not in names}
    if isinstance(value, gym.Space):
        return gym.spaces.Dict(kept) if is_dict else gym.spaces.Tuple(kept.values())
    return kept if is_dict else tuple(kept.values())


class WithBaseClass(gym.Env):
    """Gives an environment Gymnasium's base class, which Gymnasium's wrappers require."""

    def __init__(self, env: Any):
        self.inner = env
        for name in ("observation_space", "action_space", "metadata", "render_mode", "step", "render", "close", "action_masks"):
            if hasattr(env, name):  # a missing space is an error elsewhere
                setattr(self, name, getattr(env, name))

    def reset(self, *, seed=None, options=None):
        return self.inner.reset(seed=seed, **({"options": options} if options else {}))  # which it may not accept
