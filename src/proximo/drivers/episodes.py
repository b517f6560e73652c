"""The episodes that finished in a rollout of the host: raw returns, lengths, successes."""

from __future__ import annotations

import numpy as np

from proximo.envs.host.slab import SUCCESS, UNTOLD, Slab


class EpisodeLog:
    """Counts rewards as the environment gave them, through lost lives, and only what has finished."""

    def __init__(self, num_envs: int):
        self.episode_return = np.zeros(num_envs)
        self.length = np.zeros(num_envs, np.int64)
        self.partial = np.zeros(num_envs, bool)
        self.tells_success = False

    def begin(self, staggered: bool) -> None:
        """All environments have begun anew; with a start out of phase no first episode counts."""
        self.episode_return[:], self.length[:], self.partial[:] = 0.0, 0, staggered

    def add(self, slab: Slab) -> dict[str, float]:
        """The metrics of a rollout: means over the episodes that finished in it, 0 where none did."""
        valid = ~slab.filler[:-1]
        ends = (slab.terminated | slab.truncated) & valid
        rewards = np.cumsum(np.where(valid, slab.reward, 0.0), axis=0, dtype=np.float64)
        lengths = np.cumsum(valid, axis=0)
        finished: list[tuple[float, int, int]] = []
        for i in np.flatnonzero(ends.any(axis=0) | slab.cut.any(axis=0)):
            gone_return, gone_length = 0.0, 0  # of this rollout, in the episodes before
            for t in np.flatnonzero(ends[:, i] | slab.cut[:, i]):
                if ends[t, i] and not self.partial[i]:
                    episode_return = self.episode_return[i] + rewards[t, i] - gone_return
                    length = self.length[i] + lengths[t, i] - gone_length
                    finished.append((float(episode_return), int(length), int(slab.success[t, i])))
                self.episode_return[i], self.length[i], self.partial[i] = 0.0, 0, False
                gone_return, gone_length = rewards[t, i], lengths[t, i]
            self.episode_return[i], self.length[i] = -gone_return, -gone_length
        self.episode_return += rewards[-1]
        self.length += lengths[-1]
        return self._metrics(finished)

    def _metrics(self, finished: list[tuple[float, int, int]]) -> dict[str, float]:
        returns, lengths, successes = (
            (np.array(x, float) for x in zip(*finished, strict=True)) if finished else (np.zeros(0),) * 3
        )
        told = successes != UNTOLD
        self.tells_success |= bool(told.any())
        metrics = {
            "rollout/episodes": float(len(finished)),
            "rollout/return_mean": float(returns.mean()) if finished else 0.0,
            "rollout/length_mean": float(lengths.mean()) if finished else 0.0,
        }
        if self.tells_success:
            metrics["rollout/success_rate"] = float((successes == SUCCESS).mean()) if finished else 0.0
        return metrics
