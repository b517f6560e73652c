"""``CartPoleNoVel-v1``: environments whose velocities are hidden, so that the policy needs a memory.

The same environments are in the RL Zoo of Stable-Baselines3 (``MaskVelocityWrapper``).
"""

from typing import Any

import numpy as np

from proximo.envs.libraries import JaxWrapper
from proximo.spaces import Box

VELOCITIES = {
    "CartPole-v1": (1, 3),
    "LunarLander-v3": (2, 3, 5),
    "LunarLanderContinuous-v3": (2, 3, 5),
    "MountainCar-v0": (1,),
    "MountainCarContinuous-v0": (1,),
    "Pendulum-v1": (2,),
}
"""Indices of the velocities in the observation."""
DROPPED = ("Pendulum-v1",)
"""Environments whose observation becomes shorter. In the others hidden entries read 0."""

BASES = {base.replace("-", "NoVel-"): base for base in VELOCITIES}
"""``CartPole-v1`` for ``CartPoleNoVel-v1`` and so on, of Gymnasium."""


def hide(base: str, observation: Any) -> Any:
    """Hide the velocities of an observation of ``base``, or of a batch of them (NumPy or JAX)."""
    visible = ~np.isin(np.arange(observation.shape[-1]), VELOCITIES[base])
    return observation[..., visible] if base in DROPPED else observation * visible.astype(observation.dtype)


class JaxHiddenVelocities(JaxWrapper):
    """Hides the velocities of a JAX environment, ``base``."""

    def __init__(self, env: Any, base: str):
        super().__init__(env)
        self.base, space = base, env.observation_space
        if base in DROPPED:
            low, high = (hide(base, bound) for bound in space.bounds())
            self.observation_space = Box(low.shape, low, high, space.dtype)

    def observed(self, observation, state, params):
        return hide(self.base, observation)
