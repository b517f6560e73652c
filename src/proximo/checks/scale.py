"""Checks the scale of observations and rewards in random steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proximo.checks.finding import Finding
from proximo.checks.hints import has_image_shape, read_by_mlp
from proximo.config import Config, PPOConfig
from proximo.config.custom import is_custom
from proximo.envs.gymnasium.observations import leaves
from proximo.networks.normalizer import is_normalized
from proximo.spaces import ACTION_MASK, Box, Space

MAX_OBSERVATION = 100.0
"""Largest absolute value of an observation without a warning."""
MAX_REWARD = 100.0
"""Largest absolute value of a reward without a warning. A reward of -100 for a crash is usual."""
MIN_REWARD = 1e-3
"""Largest absolute value of the rewards below which a warning is given."""


def check_scale(space: Space, observations: Sequence[np.ndarray], rewards: np.ndarray, config: Config) -> list[Finding]:
    """Check that the learner reads no large observations, and no large or small rewards.

    Args:
        space: The space of the observations.
        observations: What random steps returned, one array for each leaf of the observation.
        rewards: What random steps returned, unscaled and of any shape.
        config: The settings of the training.

    Returns:
        A finding for observations and one for rewards.
    """
    found = []
    for name, fault in (
        ("observation scale", _observation_fault(space, observations, config)),
        ("reward scale", _reward_fault(config.ppo.reward_scale * rewards, config.ppo)),
    ):
        found.append(Finding(name, "warning", fault) if fault else Finding(name, "ok", "The scale suits the learner."))
    return found


def _observation_fault(space: Space, observations: Sequence[np.ndarray], config: Config) -> str:
    network, found = config.network, dict[str, list[str]]()
    if is_custom(network.encoder) or is_custom(network.actor_critic):
        return ""  # they may scale observations themselves
    for leaf, values in zip(leaves(space), observations, strict=True):
        if not isinstance(leaf.space, Box) or leaf.space.dtype == "uint8" or leaf.path == (ACTION_MASK,):
            continue  # the policy scales these by their space
        if is_normalized(leaf.space, config.ppo.normalize_observation) or read_by_mlp(leaf.space, network):
            continue  # the second has another warning with the same fix
        low, high = values.min(), values.max()
        if max(float(high), -float(low)) > MAX_OBSERVATION:
            found.setdefault(_fix(leaf.space), []).append(f"{leaf.name} {low:.4g} … {high:.4g}".strip())
    if not found:
        return ""
    sentences = [f"Observations of random steps are in the range {', '.join(ranges)}: {fix}" for fix, ranges in found.items()]
    return f"{' '.join(sentences)} Networks learn slowly from numbers above about {MAX_OBSERVATION:g}."


def _fix(space: Box) -> str:
    if has_image_shape(space):
        return "return images as uint8 in 0 … 255, which the policy scales to 0 … 1."
    if space.is_float:
        return "set normalize_observation = true (--normalize-observation)."
    return f"declare {space} as float32, which normalize_observation normalizes."


def _reward_fault(rewards: np.ndarray, ppo: PPOConfig) -> str:
    largest = np.abs(rewards).max()
    if ppo.normalizes_reward or ppo.clip_reward != "none" or largest == 0 or MIN_REWARD <= largest <= MAX_REWARD:
        return ""
    wrong = f"larger than about {MAX_REWARD:g}" if largest > MAX_REWARD else f"that are all smaller than {MIN_REWARD:g}"
    return (
        f"Rewards of random steps are in the range {rewards.min():.4g} … {rewards.max():.4g}: set normalize_reward = true "
        f"(--normalize-reward). The value function learns slowly from rewards {wrong}."
    )
