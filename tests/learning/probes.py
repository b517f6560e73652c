"""Probe environments: each isolates one thing that a learner must do, and is solved in seconds when it does it.

After Andy Jones 2021, "Debugging RL, without the agonizing pain".
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from proximo.spaces import Box, Discrete


@dataclasses.dataclass(frozen=True)
class Probe:
    """Observation float32[1], episodes of ``length`` steps that terminate, or are truncated; the state is (time, a random bit as ±1)."""

    observation: Callable[[Any], Any]
    """Of a state."""
    reward: Callable[[Any, Any], Any]
    """Of a state and an action."""
    length: int = 1
    terminates: bool = True
    action_space: Any = Discrete(2)
    observation_space = Box((1,))
    default_params = ()

    def reset(self, key, params):
        state = (jnp.int32(0), jnp.where(jax.random.bernoulli(key), 1.0, -1.0))
        return state, self._seen(state)

    def step(self, key, state, action, params):
        reward = jnp.asarray(self.reward(state, action), jnp.float32)
        state = (state[0] + 1, state[1])
        over = state[0] >= self.length
        success = over & (reward > 0.5)
        return state, self._seen(state), reward, over & self.terminates, over & (not self.terminates), {"success": success}

    def _seen(self, state):
        return jnp.reshape(self.observation(state), (1,)).astype(jnp.float32)


def agrees(state, action):
    """1 if the action is the bit, otherwise -1."""
    return state[1] * (2.0 * action - 1.0)


VALUE = Probe(lambda state: state[1], lambda state, action: state[1])
"""The reward is the observation: the value follows it."""
DISCOUNT = Probe(lambda state: state[0], lambda state, action: state[0] == 1, length=2)
"""Reward 1 after the second step: the first value is γ, the second 1."""
ACTION = Probe(lambda state: state[1], agrees)
"""The action that agrees with the observation is paid."""
MEMORY = Probe(
    lambda state: jnp.where(state[0] == 0, state[1], 0.0),
    lambda state, action: jnp.where(state[0] == 3, agrees(state, action), 0.0),
    length=4,
)
"""The bit shows in the first observation only; the action in the last of four steps must agree with it."""
ENDLESS = Probe(lambda state: 0.0, lambda state, action: 1.0, length=4, terminates=False)
"""Reward 1 for ever, cut every four steps by a time limit: the value is 1 / (1 - γ)."""
FAILING = dataclasses.replace(ENDLESS, terminates=True)
"""The mutation: the time limit is reported as a failure."""
TARGET = Probe(
    lambda state: state[1], lambda state, action: -jnp.square(action[0] - 0.5 * state[1]), action_space=Box((1,), -1.0, 1.0)
)
"""The action should be half of the observation, ±½; the cost is the squared distance."""
