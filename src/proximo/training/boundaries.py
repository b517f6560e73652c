"""The boundaries of a training: the updates after which it stops to evaluate, save, record clips or call callbacks."""

from __future__ import annotations

from collections.abc import Iterable

from proximo.config import Config


class Boundaries:
    """When a training evaluates, saves, records clips and inspects an update. All attributes count updates; 0 stands for never."""

    def __init__(self, config: Config):
        def updates(steps: int) -> int:
            return max(1, round(steps / config.batch_size)) if steps else 0

        self.total = config.total_updates
        self.evaluate_every = config.eval_updates if config.run.eval_episodes else 0
        self.save_every = updates(config.run.checkpoint_every) or config.eval_updates
        self.clip_every = updates(config.run.video_every)
        self.inspect_every = config.histograms_every

    def next_after(self, update: int, others: Iterable[int] = ()) -> int:
        """The first boundary after ``update``; ``others`` are further intervals, for example of callbacks."""
        if self.inspects_after(update):
            return update + 1
        intervals = (self.evaluate_every, self.save_every, self.clip_every, *others)
        boundaries = [(update // every + 1) * every for every in intervals if every]
        if self.inspect_every:
            boundaries.append((update // self.inspect_every + 1) * self.inspect_every - 1)
        return min(self.total, *boundaries)

    def inspects_after(self, update: int) -> bool:
        """Whether the histograms of the update that follows ``update`` are recorded. That update is a call of its own."""
        return bool(self.inspect_every) and (update + 1) % self.inspect_every == 0

    def is_due(self, every: int, update: int) -> bool:
        """Whether an event is due after ``update`` that happens every ``every`` updates and at the end."""
        return bool(every) and (update == self.total or update % every == 0)
