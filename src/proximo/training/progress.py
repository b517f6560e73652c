"""The progress of a training: its state between two calls, how many updates the next call does, and what is due after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from proximo.backends import Backend
from proximo.config import Config
from proximo.types import TrainState

CALL_SECONDS = 1.0


class Snapshot(NamedTuple):
    """A training state between two updates."""

    state: TrainState
    update: int
    """Updates that led to the state."""
    step: int
    """Environment steps of each seed that led to the state."""


class TimedCalls:
    """Advances a training in calls of about ``CALL_SECONDS``, so that Ctrl-C and reports come in time.

    Args:
        backend: what trains.
        call: calls ``call(function, *arguments)`` and returns the result; it may raise to end the training.
        max_updates: the most updates of one call; None: as many as take about ``CALL_SECONDS``.
    """

    def __init__(self, backend: Backend, call: Callable[..., Any], max_updates: int | None = None):
        self.backend, self.call, self.max_updates = backend, call, max_updates
        self.seconds, self.updates = 0.0, 0
        """Of all calls so far."""
        self.last_seconds_per_update = 0.0
        """Of the last call; 0 before the first one. An environment may become slower or faster."""

    @property
    def seconds_per_update(self) -> float:
        """The mean over all updates so far; 0 before the first one."""
        return self.seconds / self.updates if self.updates else 0.0

    @property
    def steps(self) -> int:
        """Environment steps of each seed in all calls so far."""
        return self.updates * self.backend.config.batch_size

    @property
    def steps_per_second(self) -> float:
        """Steps of one seed in a second; 0 before the first update."""
        return self.steps / self.seconds if self.seconds else 0.0

    def num_updates(self, update: int, boundary: int) -> int:
        """Updates of the next call, which follows on ``update`` and does not pass ``boundary``: at least 1."""
        seconds = self.last_seconds_per_update
        wanted = self.max_updates or (int(CALL_SECONDS / seconds) if seconds else 1)
        return max(1, min(wanted, boundary - update, self.backend.capacity))

    def advance(self, state: TrainState, num_updates: int) -> tuple[TrainState, dict[str, np.ndarray], int, float]:
        """Do up to ``num_updates`` updates in one call, and measure its time. A backend that donates uses up ``state``.

        Returns:
            The state, metrics of shape (seeds, updates), the number of updates (fewer than asked for if an environment failed), and the
            seconds of the call.
        """
        started = time.monotonic()
        state, metrics = self.call(self.backend.advance, state, num_updates)
        seconds, updates = time.monotonic() - started, next(iter(metrics.values())).shape[1]
        self.seconds, self.updates = self.seconds + seconds, self.updates + updates
        self.last_seconds_per_update = seconds / updates
        return state, metrics, updates, seconds


class Schedule:
    """When a training evaluates, saves, records clips and inspects an update. All attributes count updates; 0 stands for never."""

    def __init__(self, config: Config):
        def updates(steps: int) -> int:
            return max(1, round(steps / config.batch_size)) if steps else 0

        self.total = config.total_updates
        self.evaluate_every = config.eval_updates if config.run.eval_episodes else 0
        self.save_every = updates(config.run.checkpoint_every) or config.eval_updates
        self.clip_every = updates(config.run.video_every)
        self.inspect_every = config.histograms_every

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

    def is_due(self, every: int, update: int) -> bool:
        """Whether an event is due after ``update`` that happens every ``every`` updates and at the end."""
        return bool(every) and (update == self.total or update % every == 0)
