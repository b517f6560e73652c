"""Probe environments: each isolates one thing that a learner must do, and is solved in seconds when it does it.

After Andy Jones 2021, "Debugging RL, without the agonizing pain".
"""

import jax
import jax.numpy as jnp

from proximo.spaces import Box, Discrete


class Probe:
    """Observation float32[1], two actions, episodes of ``length`` steps that terminate; the state is (time, a random bit
    as ±1). Subclasses say what is seen and what is paid."""

    observation_space = Box((1,))
    action_space = Discrete(2)
    default_params = ()
    length = 1
    terminates = True

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

    def observation(self, state):
        return 0.0

    def reward(self, state, action):
        return 1.0


class OneStepValue(Probe):
    """Reward 1 after one step: the value is 1."""


class ObservationValue(Probe):
    """The reward is the observation: the value follows it."""

    def observation(self, state):
        return state[1]

    def reward(self, state, action):
        return state[1]


class DiscountOverTwoSteps(Probe):
    """Reward 1 after the second step: the first value is γ, the second 1."""

    length = 2

    def observation(self, state):
        return state[0]

    def reward(self, state, action):
        return state[0] == 1


class ActionReward(Probe):
    """Action 1 is paid, action 0 costs."""

    def reward(self, state, action):
        return 2.0 * action - 1.0


class ObservationAndAction(Probe):
    """The action that agrees with the observation is paid."""

    def observation(self, state):
        return state[1]

    def reward(self, state, action):
        return state[1] * (2.0 * action - 1.0)


class OneBitOfMemory(Probe):
    """The bit shows in the first observation only; the action in the last of four steps must agree with it."""

    length = 4

    def observation(self, state):
        return jnp.where(state[0] == 0, state[1], 0.0)

    def reward(self, state, action):
        return jnp.where(state[0] == 3, state[1] * (2.0 * action - 1.0), 0.0)


class ConstantReward(Probe):
    """Reward 1 for ever, cut every four steps by a time limit: the value is 1 / (1 - γ)."""

    length = 4
    terminates = False


class FailureEveryFourSteps(ConstantReward):
    """The mutation: the time limit is reported as a failure."""

    terminates = True


class ContinuousTarget(Probe):
    """The action should be half of the observation, ±½; the cost is the squared distance."""

    action_space = Box((1,), -1.0, 1.0)

    def observation(self, state):
        return state[1]

    def reward(self, state, action):
        return -jnp.square(action[0] - 0.5 * state[1])
