"""What checks find; and warnings of what makes learning slow, or is probably not what the user wants."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from proximo.config import Config, NetworkConfig, PPOConfig
from proximo.config.custom import is_custom
from proximo.custom_code import custom_code_errors
from proximo.envs.unknown_ids import newer_version
from proximo.errors import ProximoError
from proximo.networks import ActorCritic
from proximo.networks.encoders import NatureCNN, image_axes
from proximo.networks.normalizer import is_normalized
from proximo.spaces import ACTION_MASK, Box, Space, leaves

STICKY_ID = re.compile(r"(ale_py:)?ALE/\w+-v5")
MAX_NUMBERS = 8_000
"""Largest image that an MLP reads without a warning: two first layers then have a million parameters."""
MAX_PARAMETERS = 10_000_000
"""Largest number of parameters without a warning. A Nature CNN and a GRU with 512 units have 6.5 million."""
MAX_OBSERVATION = 100.0
MIN_REWARD, MAX_REWARD = 1e-3, 100.0
"""Largest absolute values without a warning. A reward of -100 for a crash is usual."""


@dataclass(frozen=True)
class Finding:
    """The result of one check, and what was seen, what was expected, and the fix. Level ``error``: training
    fails or learns from wrong data; ``warning``: it works, but something is probably not intended; ``ok``:
    nothing was found."""

    check: str
    level: Literal["ok", "warning", "error"]
    message: str


def run_check(check: str, env_id: str, function: Callable[[], Finding | str]) -> Finding:
    """Run one check. ``function`` returns a finding or a message of level ``ok``, or raises."""
    try:
        with custom_code_errors(env_id):
            result = function()
    except ProximoError as fault:
        return Finding(check, "error", str(fault).splitlines()[0])
    return Finding(check, "ok", result) if isinstance(result, str) else result


def verdict(env_id: str, findings: Sequence[Finding]) -> str:
    """Summarize all findings in one sentence."""
    counts = {level: sum(f.level == level for f in findings) for level in ("error", "warning")}
    counted = " and ".join(f"{n} {level}{'s' if n > 1 else ''}" for level, n in counts.items() if n)
    if counts["error"]:
        return f"{env_id} cannot be trained as it is: {counted}."
    return f"{env_id} can be trained{f', with {counted}' if counted else ': no problem was found'}."


def hints(env: Any, config: Config, policy: ActorCritic | None = None) -> list[Finding]:
    """Warnings about the version of the task, its sticky actions and images, and the size of ``policy``,
    whose arrays may be ``jax.ShapeDtypeStruct``."""
    env_id, newer = config.env.id, newer_version(config.env.id)
    found = [] if newer is None else [("version", f"{env_id} is an earlier version: {newer}")]
    found += [("environment", message) for message in getattr(env, "warnings", ())]
    if STICKY_ID.fullmatch(env_id) and "repeat_action_probability" not in config.env.env_settings:
        sticky = (
            f"{env_id} repeats the previous action with a probability of 0.25. Most published returns are without these "
            "sticky actions: add --env-settings repeat_action_probability=0 to compare with them, or 0.25 to confirm."
        )
        found.append(("sticky_actions", sticky))
    for leaf in leaves(env.observation_space):
        if read_by_mlp(leaf.space, config.network):
            image = (
                f"Observations{leaf.name} have the shape of an image, but are declared as {leaf.space}, so an MLP reads them. Return images as "
                "uint8 in 0 … 255, which Nature CNN reads and scales to 0 … 1"
            )
            otherwise = ", or set encoder = nature_cnn if the numbers are in 0 … 1" if len(leaf.shape) == 3 else ""
            found.append(("images", f"{image}{otherwise}."))
    if policy is not None:
        torsos = {"encoder": "encoder", "memory": "cell", "shared layers": "shared"}
        parts: dict[str, Any] = {name: [getattr(torso, part) for torso in policy.torsos] for name, part in torsos.items()}
        parts["heads"] = [policy.actor, policy.critic]
        millions = {name: sum(leaf.size for leaf in jax.tree.leaves(part)) / 1e6 for name, part in parts.items()}
        if (total := sum(millions.values())) > MAX_PARAMETERS / 1e6:
            large = (
                f"The network has {total:.1f} million parameters ({', '.join(f'{name} {n:.1f}' for name, n in millions.items())}). More than "
                f"{MAX_PARAMETERS / 1e6:.0f} million make training slow: make the observations smaller, images to about 84×84 (preprocessing = "
                "atari, gymnasium.wrappers.ResizeObservation), or set smaller hidden_sizes, cnn_features, memory_size, shared_sizes or head_sizes."
            )
            found.append(("policy", large))
    return [Finding(check, "warning", message) for check, message in found]


def read_by_mlp(space: Space, network: NetworkConfig) -> bool:
    """Whether ``encoder = auto`` makes an MLP for a large image, because it is not declared as uint8."""
    if not isinstance(space, Box) or not has_image_shape(space) or space.size <= MAX_NUMBERS:
        return False
    return space.dtype != "uint8" and network.encoder == "auto" and not is_custom(network.actor_critic)


def has_image_shape(space: Box) -> bool:
    """Whether ``space`` has the shape of an image for Nature CNN, with three or four axes, and any dtype."""
    if len(space.shape) not in (3, 4):
        return False
    height, width, *_, channels = (space.shape[axis] for axis in image_axes(space.shape))
    return min(height, width) >= max(NatureCNN.min_size, channels)


def check_scale(space: Space, observations: Sequence[np.ndarray], rewards: np.ndarray, config: Config) -> list[Finding]:
    """Check that the learner reads no large observations, and no large or small rewards. Random steps have
    returned ``observations``, an array for each leaf, and unscaled ``rewards`` of any shape."""
    faults = {
        "observation scale": _observation_fault(space, observations, config),
        "reward scale": _reward_fault(config.ppo.reward_scale * rewards, config.ppo),
    }
    return [Finding(name, "warning" if x else "ok", x or "The scale suits the learner.") for name, x in faults.items()]


def _observation_fault(space: Space, observations: Sequence[np.ndarray], config: Config) -> str:
    network, found = config.network, dict[str, list[str]]()
    if is_custom(network.encoder) or is_custom(network.actor_critic):
        return ""  # they may scale observations themselves
    for leaf, values in zip(leaves(space), observations, strict=True):
        box = leaf.space
        if not isinstance(box, Box) or box.dtype == "uint8" or leaf.path == (ACTION_MASK,):
            continue  # the policy scales these by their space
        if is_normalized(box, config.ppo.normalize_observation) or read_by_mlp(box, network):
            continue  # the second has another warning with the same fix
        low, high = values.min(), values.max()
        if max(float(high), -float(low)) > MAX_OBSERVATION:
            fix = f"declare {box} as float32, which normalize_observation normalizes."
            if box.is_float:
                fix = "set normalize_observation = true (--normalize-observation)."
            if has_image_shape(box):
                fix = "return images as uint8 in 0 … 255, which the policy scales to 0 … 1."
            found.setdefault(fix, []).append(f"{leaf.name} {low:.4g} … {high:.4g}".strip())
    if not found:
        return ""
    sentences = [f"Observations of random steps are in the range {', '.join(ranges)}: {fix}" for fix, ranges in found.items()]
    return f"{' '.join(sentences)} Networks learn slowly from numbers above about {MAX_OBSERVATION:g}."


def _reward_fault(rewards: np.ndarray, ppo: PPOConfig) -> str:
    largest = np.abs(rewards).max()
    if ppo.normalizes_reward or ppo.clip_reward != "none" or largest == 0 or MIN_REWARD <= largest <= MAX_REWARD:
        return ""
    wrong = f"larger than about {MAX_REWARD:g}" if largest > MAX_REWARD else f"that are all smaller than {MIN_REWARD:g}"
    return (
        f"Rewards of random steps are in the range {rewards.min():.4g} … {rewards.max():.4g}: set normalize_reward = true "
        f"(--normalize-reward). The value function learns slowly from rewards {wrong}."
    )
