"""The images that a policy reads, as pictures for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from proximo.networks import ActorCritic
from proximo.networks.encoders import PartsEncoder
from proximo.networks.image_encoders import ImageEncoder
from proximo.types import Observation


def reads_images(policy: ActorCritic) -> bool:
    """Whether one of the policy's CNNs encodes an image."""
    return any(_images(policy.torsos[0].encoder, None, ""))


def observation_images(policy: ActorCritic, observation: Observation) -> dict[str, np.ndarray]:
    """The images in an observation, after the preprocessing of the environment and the normalization of the policy.

    Args:
        policy: The policy. Only images that one of its CNNs encodes are returned.
        observation: One observation [1, ...], as the environment returns it.

    Returns:
        Pictures by name (``observations``, or ``observations/camera`` for an entry), uint8 [height, width, 3]. The images of a stack are
        side by side, and so are channels, unless there are three.
    """
    arrays = jax.tree.map(jnp.asarray, observation)
    read = policy.normalize(policy.with_previous_step(arrays, jnp.ones(1, bool), policy.no_previous_step(1)))
    return {
        name: _picture(np.asarray(x)[0], cnn.axes) for name, cnn, x in _images(policy.torsos[0].encoder, read, "observations")
    }


def _images(encoder: Any, x: Any, name: str) -> Iterator[tuple[str, ImageEncoder, Any]]:
    """Each CNN in ``encoder`` with the part of ``x`` that it reads, and its name."""
    if isinstance(encoder, ImageEncoder):
        yield name, encoder, x
    elif isinstance(encoder, PartsEncoder):
        parts = encoder.parts.items() if isinstance(encoder.parts, dict) else enumerate(encoder.parts)
        for where, part in parts:
            yield from _images(part, None if x is None else x[where], f"{name}/{where}")


def _picture(image: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    image = image.transpose(axes)
    if image.dtype != np.uint8:
        low, high = np.min(image), np.max(image)
        image = np.round(255.0 * (image - low) / max(high - low, 1e-9)).astype(np.uint8)
    colors = 3 if image.shape[2:][-1:] == (3,) else 1
    panels = image.reshape((*image.shape[:2], -1, colors)).swapaxes(1, 2)  # height, panels, width, colors
    return np.broadcast_to(panels.reshape((len(image), -1, colors)), (len(image), panels.size // len(image) // colors, 3)).copy()
