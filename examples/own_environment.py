"""An environment of your own, in JAX: keep a drifting point near the middle.

    cd examples && proximo train own_environment:Drift --total-steps 60000

No base class: two spaces, ``reset`` and ``step``, pure functions of one environment. proximo makes many of it, resets it,
limits time and counts episodes.
"""

import jax
import jax.numpy as jnp

from proximo.spaces import Box


class Drift:
    """Reward is 1 minus the distance from the middle; the episode ends as a failure beyond 2."""

    observation_space = Box((2,))
    action_space = Box((1,), -1.0, 1.0)

    def __init__(self, wind=0.3):
        """``--env-settings wind=0.5`` comes in here; ``default_params`` is what ``reset`` and ``step`` get, traced."""
        self.default_params = {"wind": wind}

    def reset(self, key, params):
        """Start somewhere within ±1, with a wind that stays for the episode."""
        position, wind = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        state = {"position": position, "wind": params["wind"] * wind, "time": jnp.int32(0)}
        return state, self._observe(state)

    def step(self, key, state, action, params):
        """Move by the action and the wind; the time limit is a truncation, not a failure."""
        position = state["position"] + 0.2 * action[0] + 0.2 * state["wind"]
        state = {**state, "position": position, "time": state["time"] + 1}
        terminated = jnp.abs(position) > 2.0
        truncated = state["time"] >= 100
        return state, self._observe(state), 1.0 - jnp.abs(position), terminated, truncated, {}

    def _observe(self, state):
        return jnp.stack([state["position"], state["wind"]])
