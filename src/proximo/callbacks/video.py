"""A callback that records videos during training."""

from __future__ import annotations

from pathlib import Path

from proximo.callbacks.checkpoints import absolute_folder, seed_folder
from proximo.rendering.watching import film
from proximo.training.callbacks import Info


class Video:
    """Records one greedy episode to ``folder/<step>.mp4`` at regular intervals. Training waits for it.

        proximo.train("CartPole-v1", callbacks=[Video("videos", every=100)])

    With several seeds, each seed records to ``folder/seed-<i>/<step>.mp4``. For clips that are encoded while training continues, use the setting
    ``video_every``.

    Args:
        folder: where to write; not the working folder.
        every: updates between two videos, 1 or more.
        max_steps: the most steps of a video.

    Raises:
        ConfigError: ``folder`` is the working folder.
    """

    def __init__(self, folder: str | Path, every: int = 1, max_steps: int = 1000):
        self.folder, self.every, self.max_steps = absolute_folder(folder), every, max_steps

    def on_update(self, info: Info) -> None:
        """Record an episode of the policy of ``info``."""
        film(info.policy, seed_folder(self.folder, info) / f"{info.step}.mp4", max_steps=self.max_steps)
