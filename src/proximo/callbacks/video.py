"""Clips while it learns, in a folder of one's choice."""

from __future__ import annotations

from pathlib import Path

from proximo.callbacks.checkpoints import chosen, place
from proximo.run.callbacks import Info
from proximo.run.watching import film


class Video:
    """Films an episode to ``folder/<step>.mp4`` behind every ``every`` updates (``max_steps`` of it at most): greedy, as ``proximo watch``
    shows it. Training waits for it; runs that are written have clips drawn beside it (``video_every``)."""

    def __init__(self, folder: str | Path, every: int = 1, max_steps: int = 1000):
        self.folder, self.every, self.max_steps = chosen(folder), every, max_steps

    def on_update(self, info: Info) -> None:
        """Film."""
        film(info.policy, place(self.folder, info) / f"{info.step}.mp4", most_steps=self.max_steps)
