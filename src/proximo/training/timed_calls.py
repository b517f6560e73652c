"""Calls of a backend that take about a second each, and the state of a training between two of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from proximo.training.backend import Backend
from proximo.types import TrainState

CALL_SECONDS = 1.0


class Snapshot(NamedTuple):
    """A training state between two updates, with the updates and the environment steps of each seed that led
    to it, and the metrics of the last call, of shape (seeds, updates)."""

    state: TrainState
    update: int
    step: int
    metrics: Mapping[str, np.ndarray] = {}


class TimedCalls:
    """Advances a training in calls of about ``CALL_SECONDS``, so that Ctrl-C and reports come in time.

    ``call(function, *arguments)`` calls the backend; it may raise to end the training. ``max_updates`` limits the updates of one call.
    """

    def __init__(self, backend: Backend, call: Callable[..., Any], max_updates: int | None = None):
        self.backend, self.call, self.max_updates = backend, call, max_updates
        self.seconds, self.updates = 0.0, 0
        # The last call is timed separately: an environment may become slower or faster.
        self.last_seconds, self.last_updates = 0.0, 0

    @property
    def last_seconds_per_update(self) -> float:
        """The mean over the last call; 0 before the first call."""
        return self.last_seconds / self.last_updates if self.last_updates else 0.0

    @property
    def seconds_per_update(self) -> float:
        """The mean over all updates so far; 0 before the first one."""
        return self.seconds / self.updates if self.updates else 0.0

    @property
    def steps(self) -> int:
        """Environment steps of each seed in all calls so far."""
        return self.updates * self.backend.config.batch_size

    def num_updates(self, update: int, boundary: float) -> int:
        """Updates of the next call, from ``update`` to ``boundary`` at most; at least 1."""
        seconds = self.last_seconds_per_update
        wanted = self.max_updates or (int(CALL_SECONDS / seconds) if seconds else 1)
        return max(1, int(min(wanted, boundary - update, self.backend.config.updates_per_call)))

    def advance(self, now: Snapshot, num_updates: int) -> Snapshot:
        """Do ``num_updates`` updates in one call; fewer if an environment fails."""
        started = time.monotonic()
        state, metrics = self.call(self.backend.advance, now.state, num_updates)
        self.last_seconds, self.last_updates = time.monotonic() - started, next(iter(metrics.values())).shape[1]
        self.seconds, self.updates = self.seconds + self.last_seconds, self.updates + self.last_updates
        step = now.step + self.last_updates * self.backend.config.batch_size
        return Snapshot(state, now.update + self.last_updates, step, metrics)
