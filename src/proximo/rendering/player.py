"""The protocol of players, which play and draw the episodes of one environment, and helpers for pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Array, Key

from proximo.envs import Environment, GymnasiumEnvironment
from proximo.envs.gymnasium.observations import leaves
from proximo.errors import EnvError
from proximo.networks.image_encoders import image_axes
from proximo.spaces import Box, Space

Observed = Any
"""A pytree of arrays with a leading axis of 1."""
Draw = Callable[[], np.ndarray | None]
"""Draws a picture, uint8 [height, width, 3], when it is called, in any thread. Returns None if the environment shows itself in a
window."""
DEFAULT_FPS = 30.0
SMALLEST_PICTURE = 16
"""Pixels that an observation must have along each side to be shown as a picture."""


class Step(NamedTuple):
    """The result of a step."""

    observation: Observed
    reward: float
    terminated: bool
    truncated: bool
    success: bool | None


class Player(Protocol):
    """One environment that plays the episodes of an evaluation, with the same random keys."""

    draws_at_once: bool
    """Whether ``picture`` draws when it is called. A waiting picture then takes the memory of its pixels; otherwise it takes that of a
    state."""

    def reset(self, episode: int) -> Observed:
        """Begin the episode with this index."""
        ...

    def step(self, action: np.ndarray) -> Step:
        """Take a step with an action [1, ...]."""
        ...

    def key(self) -> Key[Array, ""]:
        """The key that samples the action of the next step."""
        ...

    def picture(self) -> Draw:
        """A function that draws the environment as it is now, at any later time."""
        ...

    def close(self) -> None:
        """End the environment."""
        ...


def can_draw(env: Environment) -> bool:
    """Whether an environment can be drawn. True for single Gymnasium environments: whether they can draw is known only after the first
    attempt."""
    if isinstance(env, GymnasiumEnvironment) and env.make is not None:
        return True
    return hasattr(env, "render") or image_of(env.observation_space) is not None


def fps_of(env: Environment) -> float:
    """Frames per second that an environment is shown with: its own, 1 … 60, or ``DEFAULT_FPS``."""
    declared = getattr(env, "render_fps", 0.0)
    return float(min(max(declared, 1.0), 60.0)) if declared else DEFAULT_FPS


def no_renderer(env_id: str) -> EnvError:
    """The error for an environment that cannot be drawn."""
    return EnvError(
        f"{env_id} cannot be watched: it has no renderer, and its observations are not images. A JAX environment needs a method "
        'render(state, params). A Gymnasium environment needs "rgb_array" in metadata["render_modes"] and an argument render_mode. The picture '
        "is uint8 [height, width, 3]."
    )


def image_of(space: Space, observation: Any = None) -> np.ndarray | None:
    """The first image in an observation [1, ...], as uint8 [height, width, 3]; the newest frame of a stack. Without an observation the
    image is black. None if observations contain no image."""
    for leaf in leaves(space):
        axes = image_axes(leaf.shape) if isinstance(leaf.space, Box) and leaf.space.is_image else ()
        if axes and min(leaf.shape[axis] for axis in axes[:2]) >= SMALLEST_PICTURE:
            whole = np.zeros(leaf.shape, np.uint8) if observation is None else np.asarray(leaf.of(observation))[0]
            whole = whole.transpose(axes)
            while whole.ndim > 3 or (whole.ndim == 3 and whole.shape[2] != 3):
                whole = whole[:, :, -1]
            return np.array(whole if whole.ndim == 3 else np.repeat(whole[..., None], 3, axis=2))
    return None


def checked_picture(frame: Any, env_id: str) -> np.ndarray:
    """``frame`` as a picture, without its opacity. Raises ``EnvError`` unless it is uint8 [height, width, 3] or [height, width, 4]."""
    picture = np.asarray(frame)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (3, 4) or 0 in picture.shape:
        got = f"{picture.dtype}{list(picture.shape)}" if picture.dtype != object else type(frame).__name__
        raise EnvError(f"{env_id}.render returned {got}: expected uint8 [height, width, 3].")
    return picture[..., :3]
