"""Where an episode is played to be looked at, and what a picture is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Array, Key

from proximo.envs import HostEnvironment, JaxEnvironment
from proximo.envs.host.observations import leaves
from proximo.errors import EnvError
from proximo.networks.encoders import image_axes
from proximo.spaces import Box, Space, from_any

Observed = Any
"""A pytree of arrays with a leading axis of 1."""
Draw = Callable[[], np.ndarray | None]
"""A picture, uint8 [height, width, 3], drawn when it is called, by whichever thread; None where the environment shows itself in a window."""
DEFAULT_FPS = 30.0
SMALLEST_PICTURE = 16
"""Pixels that an observation must have along each side to be shown as a picture."""


class Step(NamedTuple):
    """What a step gave."""

    observation: Observed
    reward: float
    terminated: bool
    truncated: bool
    success: bool | None


class Stage(Protocol):
    """One environment, its randomness that of the evaluation whose episodes it plays."""

    def reset(self, episode: int) -> Observed:
        """Begin an episode."""
        ...

    def step(self, action: np.ndarray) -> Step:
        """A step with an action [1, ...]."""
        ...

    def key(self) -> Key[Array, ""]:
        """What the action before the next step is drawn with."""
        ...

    def picture(self) -> Draw:
        """What draws what stands now, at any later time."""
        ...

    def close(self) -> None:
        """End the environment."""
        ...


def draws(env: JaxEnvironment | HostEnvironment) -> bool:
    """Whether there is anything that could be looked at; of an environment of the host it is known only when it draws."""
    if isinstance(env, HostEnvironment) and env.make is not None:
        return True
    return hasattr(env, "render") or image_of(from_any(env.observation_space, "observation")) is not None


def fps_of(env: JaxEnvironment | HostEnvironment) -> float:
    """Frames per second that an environment is shown with: its own, else such that one can follow."""
    told = getattr(env, "render_fps", 0.0)
    return float(min(max(told, 1.0), 60.0)) if told else DEFAULT_FPS


def no_renderer(env_id: str) -> EnvError:
    """The error where there is nothing to look at."""
    return EnvError(
        f"{env_id} cannot be watched: it has no renderer, and its observations are no images. An environment in JAX needs a method "
        "render(state, params), one of Gymnasium's render_mode = rgb_array; both give uint8 [height, width, 3]."
    )


def image_of(space: Space, observation: Any = None) -> np.ndarray | None:
    """The first image in an observation [1, ...] as uint8 [height, width, 3], of a stack the newest one; None where there is none.
    Without an observation a black one."""
    for leaf in leaves(space):
        axes = image_axes(leaf.shape) if isinstance(leaf.space, Box) and leaf.space.is_image else ()
        if axes and min(leaf.shape[axis] for axis in axes[:2]) >= SMALLEST_PICTURE:
            whole = np.zeros(leaf.shape, np.uint8) if observation is None else np.asarray(leaf.of(observation))[0]
            whole = whole.transpose(axes)
            while whole.ndim > 3:
                whole = whole[:, :, -1]
            if whole.ndim == 3 and whole.shape[2] != 3:
                whole = whole[:, :, -1]
            return np.array(whole if whole.ndim == 3 else np.repeat(whole[..., None], 3, axis=2))
    return None


def held_picture(frame: Any, env_id: str) -> np.ndarray:
    """``frame`` as a picture. Raises ``EnvError`` where it is none."""
    picture = np.asarray(frame)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or 0 in picture.shape:
        got = f"{picture.dtype}{list(picture.shape)}" if picture.dtype != object else type(frame).__name__
        raise EnvError(f"{env_id}.render returned {got}: expected uint8 [height, width, 3].")
    return picture
