"""Environments whose velocities are hidden, so that they must be remembered: ``CartPoleNoVel-v1`` and its like, after the zoo
of Stable-Baselines3 (its ``MaskVelocityWrapper``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from proximo.spaces import Box

VELOCITIES = {
    "CartPole-v1": (1, 3),
    "LunarLander-v3": (2, 3, 5),
    "LunarLanderContinuous-v3": (2, 3, 5),
    "MountainCar-v0": (1,),
    "MountainCarContinuous-v0": (1,),
    "Pendulum-v1": (2,),
}
"""Which entries of the observation are velocities."""
DROPPED = ("Pendulum-v1",)
"""Where they are left out; elsewhere they read 0, and the shape stays."""


@dataclass(frozen=True)
class Mask:
    """Hides the velocities of the environment named ``base``."""

    base: str

    @property
    def drops(self) -> bool:
        """Whether the entries are left out."""
        return self.base in DROPPED

    def space(self, space: Box) -> Box:
        """What is left of the observation space."""
        if not self.drops:
            return space
        low, high = space.bounds()
        low, high = (tuple(map(float, np.delete(bound, VELOCITIES[self.base]))) for bound in (low, high))
        return Box((len(low),), low, high, space.dtype)

    def hide(self, observation: Any) -> Any:
        """What is left of an observation, or of a batch of them: NumPy's arrays or JAX's."""
        shown = [i for i in range(observation.shape[-1]) if i not in VELOCITIES[self.base]]
        if self.drops:
            return observation[..., np.array(shown)]
        visible = np.zeros(observation.shape[-1], observation.dtype)
        visible[shown] = 1
        return observation * visible


def base(name: str) -> str:
    """``CartPole-v1`` for ``CartPoleNoVel-v1``."""
    return re.sub(r"NoVel(?=-v\d+$)", "", name)


def mask_of(name: str) -> Mask | None:
    """For ``CartPoleNoVel-v1`` the mask of ``CartPole-v1``; None where the name is no such one."""
    return Mask(base(name)) if base(name) != name and base(name) in VELOCITIES else None


def names() -> list[str]:
    """All of them, as Gymnasium's ids."""
    return [base.replace("-", "NoVel-") for base in VELOCITIES]


class MaskedJax:
    """A JAX environment with its velocities hidden."""

    def __init__(self, env: Any, mask: Mask):
        self.env, self.mask = env, mask
        self.default_params, self.action_space = env.default_params, env.action_space
        self.observation_space = mask.space(env.observation_space)
        for name in ("render", "render_fps"):
            if hasattr(env, name):
                setattr(self, name, getattr(env, name))

    def reset(self, key: Any, params: Any) -> tuple[Any, Any]:
        """Of the environment itself."""
        state, observation = self.env.reset(key, params)
        return state, self.mask.hide(observation)

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple:
        """Of the environment itself."""
        state, observation, *rest = self.env.step(key, state, action, params)
        return state, self.mask.hide(observation), *rest
