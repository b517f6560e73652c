"""Small JAX environments whose every step is known, for tests of drivers and of the learner."""

import jax
import jax.numpy as jnp

from proximo.spaces import Box, Discrete


class RandomEnds:
    """Random observations far from mean 0 and variance 1; episodes end at random, by a termination or a truncation."""

    observation_space = Box((3,))
    action_space = Discrete(2)
    default_params = {"terminate": 0.15, "truncate": 0.15}  # noqa: RUF012

    def reset(self, key, params):
        return {"time": jnp.int32(0)}, 3.0 + 2.0 * jax.random.normal(key, (3,))

    def step(self, key, state, action, params):
        key_observation, key_end, key_reward = jax.random.split(key, 3)
        observation = 3.0 + 2.0 * jax.random.normal(key_observation, (3,))
        draw = jax.random.uniform(key_end)
        terminated = draw < params["terminate"]
        truncated = ~terminated & (draw < params["terminate"] + params["truncate"])
        reward = jax.random.normal(key_reward) + 0.1 * jnp.sum(action)
        return {"time": state["time"] + 1}, observation, reward, terminated, truncated, {}


class ContinuousRandomEnds(RandomEnds):
    """The same with two bounded continuous actions."""

    action_space = Box((2,), -0.5, 0.5)


class Counting:
    """Observation: steps since the reset, length of the episode. Reward: the number of the step, from 1. Terminates after
    a length that the reset draws from ``shortest … longest``."""

    observation_space = Box((2,))
    action_space = Discrete(2)
    default_params = {"shortest": 3, "longest": 9}  # noqa: RUF012

    def reset(self, key, params):
        length = jax.random.randint(key, (), params["shortest"], params["longest"] + 1)
        return (jnp.int32(0), length), self._observe(0, length)

    def step(self, key, state, action, params):
        time, length = state[0] + 1, state[1]
        return (time, length), self._observe(time, length), time.astype(jnp.float32), time >= length, False, {}

    def _observe(self, time, length):
        return jnp.stack([jnp.asarray(time), length]).astype(jnp.float32)


class Broken:
    """Never ends; gives NaN as observation, or as reward, at the time that the parameters say (-1: never)."""

    observation_space = Box((2,))
    action_space = Discrete(2)
    default_params = {"observation": -1, "reward": -1}  # noqa: RUF012

    def reset(self, key, params):
        return jnp.int32(0), jnp.ones(2)

    def step(self, key, state, action, params):
        time = state + 1
        observation = jnp.where(time == params["observation"], jnp.nan, jnp.ones(2) * jnp.sin(time))
        return time, observation, jnp.where(time == params["reward"], jnp.nan, 1.0), False, False, {}
