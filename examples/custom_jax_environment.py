"""A custom JAX environment: keep a drifting point near the middle.

    cd examples && proximo train custom_jax_environment:Drift --total-steps 60000

It has two spaces and two pure functions, ``reset`` and ``step``, for one environment, and no base class. proximo vectorizes it, resets
it, and counts episodes.
"""

import jax
import jax.numpy as jnp

from proximo.spaces import Box


class Drift:
    """The reward is 1 minus the distance from the middle. The episode terminates beyond a distance of 2."""

    observation_space = Box((2,))
    action_space = Box((1,), -1.0, 1.0)

    def __init__(self, wind=0.3):
        """``--env-settings wind=0.5`` sets ``wind``. ``reset`` and ``step`` receive ``default_params`` as a traced argument."""
        self.default_params = {"wind": wind}

    def reset(self, key, params):
        """Start at a random position within ±1, with a random wind that is constant during the episode."""
        position, wind = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        state = {"position": position, "wind": params["wind"] * wind, "time": jnp.int32(0)}
        return state, self._observe(state)

    def step(self, key, state, action, params):
        """Move by the action and the wind. The time limit is a truncation."""
        position = state["position"] + 0.2 * action[0] + 0.2 * state["wind"]
        state = {**state, "position": position, "time": state["time"] + 1}
        terminated = jnp.abs(position) > 2.0
        truncated = state["time"] >= 100
        return state, self._observe(state), 1.0 - jnp.abs(position), terminated, truncated, {}

    def _observe(self, state):
        return jnp.stack([state["position"], state["wind"]])
