"""JAX environments with a fault, with a brake that a test can use, or with reported successes."""

import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from broken_envs import after_reset, after_step

import toys
from gym_toys import altered

NanObservation = altered(toys.Broken, default_params={"observation": 20, "reward": -1})
"""NaN in the observation of its 20th step."""
NanReward = altered(toys.Broken, default_params={"observation": -1, "reward": 20})
"""NaN as its 20th reward."""


class Unlucky(toys.RandomEnds):
    """A few of its rewards are NaN, at random."""

    def step(self, key, state, action, params):
        state, observation, reward, *rest = super().step(key, state, action, params)
        unlucky = jax.random.uniform(jax.random.fold_in(key, 1)) > 0.9985
        return state, observation, jnp.where(unlucky, jnp.nan, reward), *rest


class Braked(toys.RandomEnds):
    """Each step takes 0.2 s while the file ``$BRAKE`` exists, and does not end while it contains "for ever"."""

    def step(self, key, state, action, params):
        def brake(x):
            file = Path(os.environ["BRAKE"])
            if file.exists():
                time.sleep(1e6 if file.read_text() == "for ever" else 0.2)
            return np.float32(x)

        result = super().step(key, state, action, params)
        reward = jax.pure_callback(brake, jax.ShapeDtypeStruct((), jnp.float32), result[2], vmap_method="sequential")
        return (*result[:2], reward, *result[3:])


class Sized(toys.RandomEnds):
    """Episodes of ``size`` steps, which are successes if they started with a positive draw."""

    default_params = {}  # noqa: RUF012

    def __init__(self, size: int = 5):
        self.size = size

    def reset(self, key, params):
        observation = jax.random.normal(key, (3,))
        return (jnp.int32(0), observation[0] > 0), observation

    def step(self, key, state, action, params):
        time, good = state[0] + 1, state[1]
        done = time >= self.size
        return (time, good), jax.random.normal(key, (3,)), jnp.float32(1), done, False, {"success": good & done}


class Mixed(toys.Counting):
    """Episodes of 1 or 40 steps with equal probability, and a reward of 1 at each step."""

    default_params = {}  # noqa: RUF012

    def reset(self, key, params):
        length = jnp.where(jax.random.bernoulli(key), 40, 1)
        return (jnp.int32(0), length), self._observe(0, length)

    def step(self, *arguments):
        state, observation, _, *rest = super().step(*arguments)
        return state, observation, jnp.float32(1), *rest


PARTS = "observation_space", "action_space", "reset"
NoStep = type("NoStep", (), {name: vars(toys.Broken)[name] for name in PARTS})
FiveValues = after_step(toys.RandomEnds, lambda self, *result: result[:5])
"""Its step returns no info."""
WrongShape = after_reset(toys.RandomEnds, lambda self, state, o: (state, jnp.zeros(4)))
"""Its first observation does not have the shape of its space."""
OddSpace = altered(toys.RandomEnds, observation_space="pixels")
SwappedReset = after_reset(toys.RandomEnds, lambda self, state, o: (o, state))
"""Its reset returns the observation first, as in gymnax."""
OneValueReset = after_reset(toys.RandomEnds, lambda self, state, o: o)
"""Its reset returns only the observation."""
