"""An environment of your own, in Gymnasium's interface: walk to the flag on a grid whose walls are masked.

    cd examples && proximo check own_gymnasium_environment:Grid
    cd examples && proximo train own_gymnasium_environment:Grid --total-steps 40000

No base class is asked for, though Gymnasium's (as here) gives you a seeded ``np_random``. proximo makes many of it, resets it
when an episode ends, and counts episodes.
"""

import gymnasium as gym
import numpy as np

MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


class Grid(gym.Env):
    """Reward 1 at the flag, -0.02 for each step; the episode is truncated after 50 steps, which is no failure."""

    action_space = gym.spaces.Discrete(4)

    def __init__(self, size: int = 5):
        """``--env-settings size=7`` comes in here."""
        self.size = size
        self.observation_space = gym.spaces.Box(0.0, 1.0, (4,), np.float32)

    def reset(self, *, seed=None, options=None):
        """Walker and flag at two different places."""
        super().reset(seed=seed)
        self.time = 0
        cells = self.np_random.choice(self.size**2, 2, replace=False)
        self.walker, self.flag = np.stack(np.unravel_index(cells, (self.size, self.size)), axis=1)
        return self._observe(), {"action_mask": self._mask()}

    def step(self, action):
        """Move; ``info["success"]`` is read in an episode's last step, ``info["action_mask"]`` in all of them."""
        self.walker = self.walker + MOVES[action]
        self.time += 1
        found = bool((self.walker == self.flag).all())
        info = {"action_mask": self._mask(), "success": found}
        return self._observe(), 1.0 if found else -0.02, found, self.time >= 50, info

    def _observe(self):
        return np.concatenate([self.walker, self.flag]).astype(np.float32) / (self.size - 1)

    def _mask(self):
        """1 where a move stays on the grid: no other action is ever taken."""
        places = self.walker + MOVES
        return ((places >= 0) & (places < self.size)).all(axis=1).astype(np.int8)
