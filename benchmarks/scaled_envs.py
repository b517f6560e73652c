"""JAX environments whose observations or rewards have unusual scales, for ``normalization.py``."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from proximo.envs import make_env
from proximo.spaces import Box, Discrete


class Scaled:
    """A gymnax environment with observations and rewards multiplied by constants."""

    def __init__(self, env_id: str, observation_scale: tuple[float, ...] | float = 1.0, reward_scale: float = 1.0):
        self.inner = make_env(env_id)
        self.default_params = self.inner.default_params
        self.action_space = self.inner.action_space
        self.scale, self.reward_scale = np.float32(observation_scale), reward_scale
        self.observation_space = Box(self.inner.observation_space.shape)

    def reset(self, key, params):
        """Start an episode."""
        state, observation = self.inner.reset(key, params)
        return state, observation * self.scale

    def step(self, key, state, action, params):
        """Do a step of the inner environment."""
        state, observation, reward, *rest = self.inner.step(key, state, action, params)
        return state, observation * self.scale, reward * self.reward_scale, *rest


def cartpole_in_millions() -> Scaled:
    """CartPole with observations between hundredths and millions."""
    return Scaled("gymnax:CartPole-v1", (1e6, 1e3, 1.0, 1e-2))


def cartpole_with_large_rewards() -> Scaled:
    """CartPole with a reward of 100,000 for each step."""
    return Scaled("gymnax:CartPole-v1", reward_scale=1e5)


def pendulum_with_small_rewards() -> Scaled:
    """Pendulum with a thousandth of its rewards."""
    return Scaled("gymnax:Pendulum-v1", reward_scale=1e-3)


class TankState(NamedTuple):
    """The level of the tank, its target, and the number of steps so far."""

    level: jax.Array
    target: jax.Array
    time: jax.Array


class Tank:
    """Keep the level of a tank at a target by draining, holding or filling. Level and target are in 0 … 100.

    The reward is a tenth of the negative distance to the target. An episode has 50 steps.
    """

    default_params = None
    observation_space = Box((2,), (0.0, 0.0), (100.0, 100.0))
    action_space = Discrete(3)

    def reset(self, key, params):
        """Draw a level and a target."""
        level, target = jax.random.uniform(key, (2,), minval=0.0, maxval=100.0)
        return TankState(level, target, jnp.int32(0)), jnp.stack([level, target])

    def step(self, key, state, action, params):
        """Change the level by -5, 0 or 5, plus noise."""
        level = jnp.clip(state.level + 5.0 * (action - 1.0) + jax.random.normal(key), 0.0, 100.0)
        state = TankState(level, state.target, state.time + 1)
        reward = -jnp.abs(level - state.target) / 10.0
        return state, jnp.stack([level, state.target]), reward, jnp.array(False), state.time >= 50, {}
