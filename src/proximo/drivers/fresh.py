"""A policy before the first step, for either driver."""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Key

from proximo.config import Config
from proximo.networks import ActorCritic, make_policy
from proximo.spaces import from_any


def fresh_policy(key: Key[Array, ""], env: Any, config: Config) -> ActorCritic:
    """A policy for the environment's spaces. Raises ``EnvError`` where a space is not supported."""
    spaces = from_any(env.observation_space, "observation"), from_any(env.action_space, "action")
    return make_policy(key, *spaces, config.network, config.ppo.normalize_observation, config.ppo.clip_observation)
