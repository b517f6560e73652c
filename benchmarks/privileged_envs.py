"""CartPole with the velocities as a separate entry of the observation, for a critic that observes more than the policy."""

from proximo.envs import make_env
from proximo.spaces import Box, Dict


class CartPoleInParts:
    """gymnax:CartPole-v1 with the observation in two entries, ``positions`` and ``velocities``; ``blind``: without the velocities."""

    def __init__(self, blind: bool = False):
        self.inner = make_env("gymnax:CartPole-v1")
        self.default_params = self.inner.default_params
        self.action_space = self.inner.action_space
        self.names = ("positions",) if blind else ("positions", "velocities")
        self.observation_space = Dict(tuple((name, Box((2,))) for name in self.names))

    def reset(self, key, params):
        """Start an episode."""
        state, observation = self.inner.reset(key, params)
        return state, self._parts(observation)

    def step(self, key, state, action, params):
        """Do a step of CartPole."""
        state, observation, *rest = self.inner.step(key, state, action, params)
        return state, self._parts(observation), *rest

    def _parts(self, x):
        parts = {"positions": x[..., ::2], "velocities": x[..., 1::2]}
        return {name: parts[name] for name in self.names}
