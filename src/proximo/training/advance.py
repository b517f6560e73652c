"""Calls of a backend that take about a second each, and the first NaN or infinity in their metrics: for `train` and `tune`
alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from proximo.backends.protocol import Backend
from proximo.collect.learning import BAD_SOURCES
from proximo.types import TrainState

CALL_SECONDS = 1.0


class Advanced(NamedTuple):
    """The result of one call."""

    state: TrainState
    metrics: dict[str, np.ndarray]
    """Metrics by name, of shape (seeds, updates)."""
    updates: int
    """Updates of the call: as many as were asked for, or fewer if an environment failed."""
    seconds: float


class TimedCalls:
    """Advances a training in calls of about ``CALL_SECONDS``, so that Ctrl-C and reports come in time.

    Args:
        backend: what trains.
        call: calls ``call(function, *arguments)`` and returns the result; it may raise to end the training.
        max_updates: the most updates of one call; 0: as many as take about ``CALL_SECONDS``.
    """

    def __init__(self, backend: Backend, call: Callable[..., Any], max_updates: int = 0):
        self.backend, self.call, self.max_updates = backend, call, max_updates
        self.seconds, self.updates = 0.0, 0
        self.last_seconds_per_update = 0.0
        """Of the last call; 0 before the first one. An environment may become slower or faster."""

    @property
    def seconds_per_update(self) -> float:
        """The mean over all updates so far; 0 before the first one."""
        return self.seconds / self.updates if self.updates else 0.0

    def num_updates(self, update: int, boundary: int) -> int:
        """Updates of the next call, which follows on ``update`` and does not pass ``boundary``: at least 1."""
        seconds = self.last_seconds_per_update
        wanted = self.max_updates or (int(CALL_SECONDS / seconds) if seconds else 1)
        return max(1, min(wanted, boundary - update, self.backend.capacity))

    def advance(self, state: TrainState, num_updates: int) -> Advanced:
        """Do up to ``num_updates`` updates in one call, and measure its time. A backend that donates uses up ``state``."""
        started = time.monotonic()
        state, metrics = self.call(self.backend.advance, state, num_updates)
        seconds, updates = time.monotonic() - started, next(iter(metrics.values())).shape[1]
        self.seconds, self.updates = self.seconds + seconds, self.updates + updates
        self.last_seconds_per_update = seconds / updates
        return Advanced(state, metrics, updates, seconds)


def first_fault(metrics: dict[str, np.ndarray], index: int) -> tuple[int, str]:
    """The first NaN or infinity of one seed.

    Args:
        metrics: metrics of a call, of shape (seeds, updates).
        index: index of the seed.

    Returns:
        The number of updates before it, and its source (one of ``BAD_SOURCES``); all updates and an empty string if every number
        is finite.
    """
    bad = np.array([metrics[f"bad/{source}"][index] for source in BAD_SOURCES]) > 0
    if not bad.any():
        return bad.shape[1], ""
    update = int(bad.any(axis=0).argmax())
    return update, BAD_SOURCES[int(bad[:, update].argmax())]
