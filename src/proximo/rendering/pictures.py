"""Pictures for people: of environments, and of the images that a policy reads."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from proximo.envs import Environment, GymnasiumEnvironment
from proximo.errors import EnvError
from proximo.networks import ActorCritic
from proximo.networks.encoders import ImageEncoder, PartsEncoder, image_axes
from proximo.spaces import Box, Space, leaves
from proximo.types import Observation

Draw = Callable[[], np.ndarray | None]
"""Draws uint8 [height, width, 3], in any thread. None: the environment shows itself in a window."""
SMALLEST_PICTURE = 16
"""Pixels that an observation must have along each side to be shown as a picture."""


def can_draw(env: Environment) -> bool:
    """Whether an environment can be drawn. True for single Gymnasium environments, which must be tried."""
    if isinstance(env, GymnasiumEnvironment) and env.make is not None:
        return True
    return hasattr(env, "render") or image_of(env.observation_space) is not None


def no_renderer(env_id: str) -> EnvError:
    """The error for an environment that cannot be drawn."""
    return EnvError(
        f"{env_id} cannot be watched: it has no renderer, and its observations are not images. A JAX environment needs a method "
        'render(state, params). A Gymnasium environment needs "rgb_array" in metadata["render_modes"] and an argument render_mode. The picture '
        "is uint8 [height, width, 3]."
    )


def image_of(space: Space, observation: Any = None) -> np.ndarray | None:
    """The first image in an observation [1, ...] (None: black), of a stack the newest, as uint8 [height, width, 3]."""
    for leaf in leaves(space):
        axes = image_axes(leaf.shape) if isinstance(leaf.space, Box) and leaf.space.is_image else ()
        if axes and min(leaf.shape[axis] for axis in axes[:2]) >= SMALLEST_PICTURE:
            whole = np.zeros(leaf.shape, np.uint8) if observation is None else np.asarray(leaf.of(observation))[0]
            return _side_by_side(whole, axes)[:, -leaf.shape[axes[1]] :]
    return None


def checked_picture(frame: Any, env_id: str) -> np.ndarray:
    """``frame`` as a picture, without its opacity. Raises ``EnvError`` unless it is uint8 [height, width, 3 or 4]."""
    picture = np.asarray(frame)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (3, 4) or 0 in picture.shape:
        got = f"{picture.dtype}{list(picture.shape)}" if picture.dtype != object else type(frame).__name__
        raise EnvError(f"{env_id}.render returned {got}: expected uint8 [height, width, 3].")
    return picture[..., :3]


def reads_images(policy: ActorCritic) -> bool:
    """Whether one of the policy's CNNs encodes an image."""
    return any(_encoded(policy.torsos[0].encoder, None, ""))


def observation_images(policy: ActorCritic, observation: Observation) -> dict[str, np.ndarray]:
    """The images that the CNNs of ``policy`` read of one observation [1, ...], after all preprocessing: uint8 [height, width, 3] by name
    (``observations``, or ``observations/camera`` for an entry). The images of a stack are side by side, and so are channels, unless there
    are three."""
    arrays = jax.tree.map(jnp.asarray, observation)
    read = policy.normalize(policy.with_previous_step(arrays, jnp.ones(1, bool), policy.no_previous_step(1)))
    return {
        name: _side_by_side(np.asarray(x)[0], cnn.axes)
        for name, cnn, x in _encoded(policy.torsos[0].encoder, read, "observations")
    }


def _encoded(encoder: Any, x: Any, name: str) -> Iterator[tuple[str, ImageEncoder, Any]]:
    """Each CNN in ``encoder`` with the part of ``x`` that it reads, and its name."""
    if isinstance(encoder, ImageEncoder):
        yield name, encoder, x
    elif isinstance(encoder, PartsEncoder):
        parts = encoder.parts.items() if isinstance(encoder.parts, dict) else enumerate(encoder.parts)
        for where, part in parts:
            yield from _encoded(part, None if x is None else x[where], f"{name}/{where}")


def _side_by_side(image: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    image = image.transpose(axes)
    if image.dtype != np.uint8:
        low, high = np.min(image), np.max(image)
        image = np.round(255.0 * (image - low) / max(high - low, 1e-9)).astype(np.uint8)
    colors = 3 if image.shape[2:][-1:] == (3,) else 1
    panels = image.reshape((*image.shape[:2], -1, colors)).swapaxes(1, 2)  # height, panels, width, colors
    return np.broadcast_to(panels.reshape((len(image), -1, colors)), (len(image), panels.size // len(image) // colors, 3)).copy()
