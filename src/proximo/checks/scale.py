"""Checks the scale of observations and rewards in random steps."""

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
"""Largest absolute value of an observation without a warning."""
MAX_REWARD = 100.0
"""Largest absolute value of a reward without a warning. A reward of -100 for a crash is usual."""
MIN_REWARD = 1e-3
"""Largest absolute value of the rewards below which a warning is given."""


class Seen(NamedTuple):
    """What random steps returned."""

    observations: list[np.ndarray]
    """One array of shape ``[steps, ...]`` for each leaf of the observation."""
    rewards: np.ndarray
    """Unscaled, of any shape."""


def check_scale(space: Space, seen: Seen, config: Config) -> list[Finding]:
    """Check that the learner reads no large observations, and no large or small rewards.

    Args:
        space: The space of the observations.
        seen: What random steps returned.
        config: The settings of the training.

    Returns:
        A finding for observations and one for rewards.
    """
    return [_observation_scale(leaves(space), seen.observations, config), _reward_scale(seen.rewards, config.ppo)]


def _observation_scale(expected: list[Leaf], observations: list[np.ndarray], config: Config) -> Finding:
    name = "observation scale"
    network = config.network
    if is_custom(network.encoder) or is_custom(network.actor_critic):
        return ok(name, "Not checked: custom networks may scale observations themselves.")
    found: dict[str, list[str]] = {}
    for leaf, values in zip(expected, observations, strict=True):
        space, finite = leaf.space, values[np.isfinite(values)]
        if not isinstance(space, Box) or space.dtype == "uint8" or leaf.path == (ACTION_MASK,):
            continue  # the policy scales these by their space
        if is_normalized(space, config.ppo.normalize_observation) or first_layer_parameters(space, network) > MAX_FIRST_LAYER:
            continue  # a large first layer has another warning with the same fix
        if finite.size and max(float(finite.max()), -float(finite.min())) > MAX_OBSERVATION:
            low, high = finite.min(), finite.max()
            found.setdefault(_observation_fix(space), []).append(f"{leaf.name} {low:.4g} … {high:.4g}".strip())
    if not found:
        return ok(
            name, f"Observations of random steps are at most {MAX_OBSERVATION:g} in absolute value, or the policy scales them."
        )
    sentences = [f"Observations of random steps are in the range {', '.join(ranges)}: {fix}" for fix, ranges in found.items()]
    return warning(name, f"{' '.join(sentences)} Networks learn slowly from numbers above about {MAX_OBSERVATION:g}.")


def _observation_fix(space: Box) -> str:
    if has_image_shape(space):
        return "return images as uint8 in 0 … 255, which the policy scales to 0 … 1."
    if space.is_float:
        return "set normalize_observation = true (--normalize-observation)."
    return f"declare {space} as float32, which normalize_observation normalizes."


def _reward_scale(rewards: np.ndarray, ppo: PPOConfig) -> Finding:
    name = "reward scale"
    if ppo.normalizes_reward or ppo.clip_reward != "none":
        return ok(name, "The learner scales rewards.")
    rewards = ppo.reward_scale * rewards[np.isfinite(rewards)]
    sizes = np.abs(rewards[rewards != 0])
    if not sizes.size or MIN_REWARD <= sizes.max() <= MAX_REWARD:
        return ok(name, f"The largest absolute reward of random steps is 0, or between {MIN_REWARD:g} and {MAX_REWARD:g}.")
    wrong = f"larger than about {MAX_REWARD:g}" if sizes.max() > MAX_REWARD else f"that are all smaller than {MIN_REWARD:g}"
    return warning(
        name,
        f"Rewards of random steps are in the range {rewards.min():.4g} … {rewards.max():.4g}: set normalize_reward = true "
        f"(--normalize-reward). The value function learns slowly from rewards {wrong}.",
    )
