"""When a training evaluates, saves, records clips and inspects an update."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proximo.config import Config


@dataclass(frozen=True)
class Schedule:
    """Numbers of updates between two events of one kind. The training stops computing at each such boundary."""

    total: int
    evaluate_every: int
    save_every: int
    clip_every: int
    """0: no clips."""
    inspect_every: int
    """Updates between two updates whose histograms are recorded; 0: no histograms."""
    evaluates: bool

    @classmethod
    def of(cls, config: Config) -> Schedule:
        """The schedule that the settings ask for."""

        def updates(steps: int) -> int:
            return max(1, round(steps / config.batch_size)) if steps else 0

        return cls(
            total=config.total_updates,
            evaluate_every=config.eval_updates,
            save_every=updates(config.run.checkpoint_every) or config.eval_updates,
            clip_every=updates(config.run.video_every),
            inspect_every=config.histograms_every,
            evaluates=bool(config.run.eval_episodes),
        )

    def next_boundary(self, update: int, others: Iterable[int] = ()) -> int:
        """The first update after ``update`` at which the training has to stop; ``others`` are further intervals, for example of callbacks."""
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

    def evaluates_at(self, update: int) -> bool:
        """Whether the policy is evaluated after ``update``."""
        return self.evaluates and self._is_due(self.evaluate_every, update)

    def saves_at(self, update: int) -> bool:
        """Whether a checkpoint is saved after ``update``."""
        return self._is_due(self.save_every, update)

    def clips_at(self, update: int) -> bool:
        """Whether a clip is recorded after ``update``."""
        return self._is_due(self.clip_every, update)

    def _is_due(self, every: int, update: int) -> bool:
        return bool(every) and (update == self.total or update % every == 0)
