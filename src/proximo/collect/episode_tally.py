"""The episodes that finish in Gymnasium environments: returns of raw rewards, lengths, successes."""

from typing import NamedTuple

import numpy as np

from proximo.envs.gymnasium.rollout_buffer import SUCCESS, UNREPORTED, RolloutBuffer


class Episode(NamedTuple):
    """A finished episode."""

    env: int
    """Number of its environment."""
    episode_return: float
    length: int
    success: int
    """SUCCESS, FAILURE or UNREPORTED."""


class EpisodeTally:
    """Counts the running episode of each environment. A lost life does not end an episode, and an episode
    that was cut short by a lost worker is not counted."""

    def __init__(self, num_envs: int, first_env: int = 0):
        self._first_env = first_env
        self.episode_return = np.zeros(num_envs)
        """Return of the running episode so far, N."""
        self.length = np.zeros(num_envs, np.int64)
        """Steps of the running episode so far, N."""
        self._is_partial = np.zeros(num_envs, bool)
        self._reports_success = False
        self.finished: list[Episode] = []
        """The episodes that finished in the last rollout."""

    def begin(self, staggered: bool) -> None:
        """Count new episodes. With a ``staggered`` start the first ones are cut short and not counted."""
        self.episode_return[:], self.length[:], self._is_partial[:] = 0.0, 0, staggered

    def add(self, buffer: RolloutBuffer) -> list[Episode]:
        """Count the steps of a rollout. Returns the episodes that finished in it, by environment."""
        valid = buffer.valid[:-1]
        ends = (buffer.terminated | buffer.truncated) & valid
        rewards = np.where(valid, buffer.reward, 0.0).astype(np.float64)
        start = np.zeros(len(self.length), int)  # of the running episode in this rollout, N
        self.finished = []
        for i, t in np.argwhere((ends | buffer.lost).T):
            # Summed for each episode, so that NaN or infinity changes the return of one episode only.
            self.episode_return[i] += rewards[start[i] : t + 1, i].sum()
            self.length[i] += valid[start[i] : t + 1, i].sum()
            if ends[t, i] and not self._is_partial[i]:
                numbers = int(self.length[i]), int(buffer.success[t, i])
                self.finished.append(Episode(self._first_env + int(i), float(self.episode_return[i]), *numbers))
            self.episode_return[i], self.length[i], self._is_partial[i] = 0.0, 0, False
            start[i] = t + 1
        is_running = np.arange(len(valid))[:, None] >= start
        self.episode_return += np.where(is_running, rewards, 0.0).sum(axis=0)
        self.length += (valid & is_running).sum(axis=0)
        return self.finished

    def metrics(self) -> dict[str, float]:
        """Statistics of the ``finished`` episodes; 0 without episodes. The success rate is a metric as soon as an
        environment has reported whether an episode succeeded."""
        self._reports_success |= any(episode.success != UNREPORTED for episode in self.finished)
        returns, lengths = [episode.episode_return for episode in self.finished], [episode.length for episode in self.finished]
        functions = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max}
        metrics = {"rollout/episodes": float(len(self.finished))}
        for name, values in (("return", returns), ("length", lengths)):
            x = np.array(values or [0.0], float)
            metrics |= {f"rollout/{name}_{word}": float(function(x)) for word, function in functions.items()}
        if self._reports_success:
            successes = [episode.success == SUCCESS for episode in self.finished]
            metrics["rollout/success_rate"] = float(np.mean(successes or [False]))
        return metrics
