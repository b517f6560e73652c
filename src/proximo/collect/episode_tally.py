"""The episodes that finish in Gymnasium environments: returns of raw rewards, lengths, successes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from proximo.envs.gymnasium.rollout_buffer import SUCCESS, UNREPORTED, RolloutBuffer


class Episode(NamedTuple):
    """A finished episode."""

    env: int
    """Index of its environment."""
    episode_return: float
    length: int
    success: int
    """SUCCESS, FAILURE or UNREPORTED."""


class EpisodeTally:
    """Counts the running episode of each environment. A lost life does not end an episode, and an episode that was cut short by a
    lost worker is not counted."""

    def __init__(self, num_envs: int):
        self.episode_return = np.zeros(num_envs)
        """Return of the running episode so far, N."""
        self.length = np.zeros(num_envs, np.int64)
        """Steps of the running episode so far, N."""
        self._is_partial = np.zeros(num_envs, bool)
        self._reports_success = False
        self.finished: list[Episode] = []
        """The episodes that finished in the last rollout."""

    def begin(self, staggered: bool = False) -> None:
        """Count new episodes in all environments. With a ``staggered`` start the first episodes are cut short and not counted."""
        self.episode_return[:], self.length[:], self._is_partial[:] = 0.0, 0, staggered

    def add(self, buffer: RolloutBuffer) -> list[Episode]:
        """Count the steps of a rollout. Returns the episodes that ``finished`` in it, environment by environment."""
        valid = buffer.valid[:-1]
        ends = (buffer.terminated | buffer.truncated) & valid
        rewards = np.cumsum(np.where(valid, buffer.reward, 0.0), axis=0, dtype=np.float64)
        lengths = np.cumsum(valid, axis=0)
        finished: list[Episode] = []
        for i in np.flatnonzero(ends.any(axis=0) | buffer.lost.any(axis=0)):
            past_return, past_length = 0.0, 0  # of this rollout, before the running episode
            for t in np.flatnonzero(ends[:, i] | buffer.lost[:, i]):
                if ends[t, i] and not self._is_partial[i]:
                    episode_return = self.episode_return[i] + rewards[t, i] - past_return
                    length = self.length[i] + lengths[t, i] - past_length
                    finished.append(Episode(int(i), float(episode_return), int(length), int(buffer.success[t, i])))
                self.episode_return[i], self.length[i], self._is_partial[i] = 0.0, 0, False
                past_return, past_length = rewards[t, i], lengths[t, i]
            self.episode_return[i], self.length[i] = -past_return, -past_length
        self.episode_return += rewards[-1]
        self.length += lengths[-1]
        self.finished = finished
        return finished

    def metrics(self, finished: list[Episode]) -> dict[str, float]:
        """The metrics of a rollout: statistics of the episodes that ``finished`` in it, 0 if none did. The rate of successes is
        given as soon as an environment has reported one."""
        self._reports_success |= any(episode.success != UNREPORTED for episode in finished)
        metrics = {
            "rollout/episodes": float(len(finished)),
            **_statistics("return", [episode.episode_return for episode in finished]),
            **_statistics("length", [episode.length for episode in finished]),
        }
        if self._reports_success:
            successes = [episode.success == SUCCESS for episode in finished]
            metrics["rollout/success_rate"] = float(np.mean(successes)) if finished else 0.0
        return metrics


def _statistics(name: str, values: Sequence[float]) -> dict[str, float]:
    x = np.array(values, float) if values else np.zeros(1)
    functions = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max}
    return {f"rollout/{name}_{word}": float(function(x)) for word, function in functions.items()}
