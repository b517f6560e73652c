"""Warns about environments that can be trained, but are probably not what the user wants to train."""

from __future__ import annotations

import re
from typing import Any

from proximo.checks.finding import Finding, warning
from proximo.config import Config
from proximo.config.custom import is_custom
from proximo.envs import other_ids
from proximo.envs.gymnasium.observations import leaves
from proximo.networks.encoders import NatureCNN, image_axes
from proximo.spaces import Box, from_any

MAX_SIDE = 128
"""Largest height and width of an image in pixels without a warning. 64 to 84 pixels are usual."""
STICKY_ID = re.compile(r"(ale_py:)?ALE/\w+-v5")


def hints(env: Any, config: Config) -> list[Finding]:
    """Warnings about the version of the task, about its sticky actions, and about the size of its images."""
    newer = other_ids.newer_version(config.env.id)
    version = [] if newer is None else [warning("version", f"{config.env.id} is an earlier version: {newer}")]
    return [*version, *_sticky_actions(config), *_large_images(env, config)]


def _sticky_actions(config: Config) -> list[Finding]:
    """A warning for an Atari game that repeats actions at random unless it is told otherwise."""
    if not STICKY_ID.fullmatch(config.env.id) or "repeat_action_probability" in config.env.env_settings:
        return []
    return [
        warning(
            "sticky_actions",
            f"{config.env.id} repeats the previous action with a probability of 0.25. Most published returns are without these sticky "
            "actions: add --env-settings repeat_action_probability=0 to compare with them, or 0.25 to confirm.",
        )
    ]


def _large_images(env: Any, config: Config) -> list[Finding]:
    """A warning for each size of images above ``MAX_SIDE``. A custom encoder may reduce images itself."""
    if is_custom(config.network.encoder) or is_custom(config.network.actor_critic):
        return []
    sizes = {
        tuple(leaf.shape[axis] for axis in image_axes(leaf.shape)[:2])
        for leaf in leaves(from_any(env.observation_space, "observation"))
        if isinstance(leaf.space, Box) and leaf.space.is_image
    }
    return [
        warning(
            "images",
            f"The encoder reads images of {height}×{width} pixels. More than {MAX_SIDE} pixels along a side make the network large and "
            "training slow: set preprocessing = atari for an Atari game, resize the images to about 84×84 "
            "(gymnasium.wrappers.ResizeObservation), or set a custom encoder.",
        )
        for height, width in sorted(sizes)
        if min(height, width) >= NatureCNN.min_size and max(height, width) > MAX_SIDE
    ]
