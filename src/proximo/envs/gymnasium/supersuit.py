"""Vector environments of SuperSuit with Gymnasium's interface."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space


class SuperSuitVectorEnv(gym.vector.VectorWrapper):
    """A vector environment of ``supersuit.concat_vec_envs_v1``, whose slots are the agents of several environments.

    Its spaces are those of one agent, it returns a list of infos, and it resets an environment in the step in which it ends.
    """

    env: Any

    def __init__(self, env: Any):
        super().__init__(env)
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space
        self.observation_space, self.action_space = (
            batch_space(space, env.num_envs) for space in (env.observation_space, env.action_space)
        )
        self.metadata = {**env.metadata, "autoreset_mode": "SameStep"}

    def reset(self, *, seed=None, options=None):
        observation, _ = self.env.reset(seed=seed, options=options)
        return observation, {}

    def step(self, actions):
        result: Any = self.env.step(actions)
        observation, reward, terminated, truncated, infos = result
        finals = [info.get("terminal_observation") for info in infos]
        info = {"final_obs": finals} if any(final is not None for final in finals) else {}
        return observation, reward, np.asarray(terminated, bool), np.asarray(truncated, bool), info


def adapted(env: Any) -> Any:
    """``env`` with Gymnasium's interface, if it is of SuperSuit."""
    return SuperSuitVectorEnv(env) if type(env).__module__.startswith("supersuit.") else env
