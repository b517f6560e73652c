"""Warns about environments that can be trained, but are probably not what the user wants to train."""

from __future__ import annotations

import re
from typing import Any

from proximo.checks.finding import Finding, warning
from proximo.checks.images import check_images
from proximo.checks.policy import check_size
from proximo.checks.scale import Seen, check_scale
from proximo.config import Config
from proximo.envs import other_ids
from proximo.networks import ActorCritic
from proximo.spaces import from_any

STICKY_ID = re.compile(r"(ale_py:)?ALE/\w+-v5")


def hints(env: Any, config: Config, policy: ActorCritic | None = None, seen: Seen | None = None) -> list[Finding]:
    """Warnings about the version of the task, its sticky actions and images, the size of the network, and the scale of observations and rewards.

    Args:
        env: The environment.
        config: The settings of the training.
        policy: A policy of the training; its leaves may be ``jax.ShapeDtypeStruct``. If None, its size is not checked.
        seen: What random steps returned. If None, the scale is not checked.
    """
    newer = other_ids.newer_version(config.env.id)
    version = [] if newer is None else [warning("version", f"{config.env.id} is an earlier version: {newer}")]
    version += [warning("environment", message) for message in getattr(env, "warnings", ())]
    space = from_any(env.observation_space, "observation")
    network = check_images(space, config) or ([] if policy is None else check_size(policy))  # large images make large networks
    scale = [] if seen is None else check_scale(space, seen, config)
    return [*version, *_sticky_actions(config), *network, *(finding for finding in scale if finding.level == "warning")]


def _sticky_actions(config: Config) -> list[Finding]:
    """A warning for an Atari game that repeats actions at random by default."""
    if not STICKY_ID.fullmatch(config.env.id) or "repeat_action_probability" in config.env.env_settings:
        return []
    return [
        warning(
            "sticky_actions",
            f"{config.env.id} repeats the previous action with a probability of 0.25. Most published returns are without these sticky "
            "actions: add --env-settings repeat_action_probability=0 to compare with them, or 0.25 to confirm.",
        )
    ]
