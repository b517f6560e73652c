"""Warns about images that are larger than an encoder should read."""

from __future__ import annotations

from typing import Any

from proximo.config import Config
from proximo.config.custom import is_custom
from proximo.envs.gymnasium.observations import leaves
from proximo.networks.encoders import MIN_IMAGE_SIZE, image_axes
from proximo.spaces import Box, from_any

MAX_SIDE = 128
"""Largest height and width in pixels without a warning. The literature uses 64 to 84 pixels."""


def image_warnings(env: Any, config: Config) -> list[str]:
    """One sentence for each part of the observation that is an image of more than 128 pixels along a side.

    A custom encoder may reduce images itself, so it gets no warning.
    """
    if is_custom(config.network.encoder) or is_custom(config.network.actor_critic):
        return []
    sizes = {
        tuple(leaf.shape[axis] for axis in image_axes(leaf.shape)[:2])
        for leaf in leaves(from_any(env.observation_space, "observation"))
        if isinstance(leaf.space, Box) and leaf.space.is_image
    }
    return [
        f"The encoder reads images of {height}×{width} pixels: training is slow and the network large with more than {MAX_SIDE} pixels along "
        "a side. Resize them, for example with gymnasium.wrappers.ResizeObservation to 84×84 (for Atari games: preprocessing = atari), or set "
        "a custom encoder."
        for height, width in sorted(sizes)
        if min(height, width) >= MIN_IMAGE_SIZE and max(height, width) > MAX_SIDE
    ]
