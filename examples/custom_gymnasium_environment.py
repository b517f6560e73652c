"""A custom Gymnasium environment: walk to a flag on a grid, with an action mask that forbids moves off the grid.

    cd examples && proximo check custom_gymnasium_environment:Grid
    cd examples && proximo train custom_gymnasium_environment:Grid --total-steps 40000

A base class is not required; ``gymnasium.Env`` provides a seeded ``np_random``. proximo makes several environments, resets them when an
episode ends, and counts episodes.
"""

import gymnasium as gym
import numpy as np

MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


class Grid(gym.Env):
    """The reward is 1 at the flag and -0.02 for each other step. Episodes are truncated after 50 steps."""

    action_space = gym.spaces.Discrete(4)

    def __init__(self, size: int = 5):
        """``--env-settings size=7`` sets ``size``."""
        self.size = size
        self.observation_space = gym.spaces.Box(0.0, 1.0, (4,), np.float32)

    def reset(self, *, seed=None, options=None):
        """Place the walker and the flag on two different cells."""
        super().reset(seed=seed)
        self.time = 0
        cells = self.np_random.choice(self.size**2, 2, replace=False)
        self.walker, self.flag = np.stack(np.unravel_index(cells, (self.size, self.size)), axis=1)
        return self._observe(), {"action_mask": self._mask()}

    def step(self, action):
        """Move. ``info["success"]`` is read in the last step of an episode, ``info["action_mask"]`` in every step."""
        self.walker = self.walker + MOVES[action]
        self.time += 1
        found = bool((self.walker == self.flag).all())
        info = {"action_mask": self._mask(), "success": found}
        return self._observe(), 1.0 if found else -0.02, found, self.time >= 50, info

    def _observe(self):
        return np.concatenate([self.walker, self.flag]).astype(np.float32) / (self.size - 1)

    def _mask(self):
        """Return 1 for each move that stays on the grid. The policy takes no other action."""
        places = self.walker + MOVES
        return ((places >= 0) & (places < self.size)).all(axis=1).astype(np.int8)
