"""Checks the scale of observations and rewards in a random play."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from proximo.checks.finding import Finding, ok, warning
from proximo.checks.images import MAX_FIRST_LAYER, first_layer_parameters, has_image_shape
from proximo.config import Config, PPOConfig
from proximo.config.custom import is_custom
from proximo.envs.gymnasium.observations import Leaf, leaves
from proximo.networks.normalizer import is_normalized
from proximo.spaces import ACTION_MASK, Box, Space

MAX_OBSERVATION = 100.0
"""Largest absolute value of an observation without a warning. Levels in 0 … 100 were learned as fast as levels in 0 … 1."""
MAX_REWARD = 100.0
"""Largest absolute value of a reward without a warning. A crash at -100 is usual."""
MIN_REWARD = 1e-3
"""A warning is given if no reward is larger. CartPole was learned with rewards of 1e-3 as fast as with 1, and not with 1e-4."""


class Seen(NamedTuple):
    """What a random play returned."""

    observations: list[np.ndarray]
    """One array of shape ``[steps, ...]`` for each leaf of the observation."""
    rewards: np.ndarray
    """Unscaled, of any shape."""


def check_scale(space: Space, seen: Seen, config: Config) -> list[Finding]:
    """Check that the learner reads observations and rewards of moderate size: two findings.

    Args:
        space: The space of the observations.
        seen: A random play.
        config: The settings of the training.
    """
    return [_observation_scale(leaves(space), seen.observations, config), _reward_scale(seen.rewards, config.ppo)]


def _observation_scale(expected: list[Leaf], observations: list[np.ndarray], config: Config) -> Finding:
    name = "observation scale"
    network = config.network
    if is_custom(network.encoder) or is_custom(network.actor_critic):
        return ok(name, "Not checked: custom networks may scale observations themselves.")
    found: dict[str, list[str]] = {}
    for leaf, values in zip(expected, observations, strict=True):
        space, low, high = leaf.space, float(values.min()), float(values.max())
        if not isinstance(space, Box) or space.dtype == "uint8" or leaf.path == (ACTION_MASK,):
            continue  # the policy scales these by their space
        if is_normalized(space, config.ppo.normalize_observation) or first_layer_parameters(space, network) > MAX_FIRST_LAYER:
            continue  # the latter has a warning that names the same fix
        if max(-low, high) > MAX_OBSERVATION:
            found.setdefault(_observation_fix(space), []).append(f"{leaf.name} {low:.4g} … {high:.4g}".strip())
    if not found:
        return ok(name, f"Observations of random steps are at most {MAX_OBSERVATION:g} in size, or the policy scales them.")
    sentences = [f"Observations of random steps are in the range {', '.join(ranges)}: {fix}" for fix, ranges in found.items()]
    return warning(name, f"{' '.join(sentences)} Networks learn slowly from numbers above about {MAX_OBSERVATION:g}.")


def _observation_fix(space: Box) -> str:
    if has_image_shape(space):
        return "return images as uint8 in 0 … 255, which the policy scales to 0 … 1."
    if space.is_float:
        return "set normalize_observation = true (--normalize-observation)."
    return f"declare {space} as float32, and set normalize_observation = true (--normalize-observation)."


def _reward_scale(rewards: np.ndarray, ppo: PPOConfig) -> Finding:
    name = "reward scale"
    if ppo.normalizes_reward or ppo.clip_reward != "none":
        return ok(name, "The learner scales rewards.")
    sizes = np.abs(rewards[rewards != 0])
    if not sizes.size or MIN_REWARD <= sizes.max() <= MAX_REWARD:
        return ok(name, f"The largest reward of random steps is 0, or between {MIN_REWARD:g} and {MAX_REWARD:g} in size.")
    wrong = f"larger than about {MAX_REWARD:g}" if sizes.max() > MAX_REWARD else f"that are all smaller than {MIN_REWARD:g}"
    return warning(
        name,
        f"Rewards of random steps are in the range {rewards.min():.4g} … {rewards.max():.4g}: set normalize_reward = true "
        f"(--normalize-reward). The value function learns slowly from rewards {wrong}.",
    )
