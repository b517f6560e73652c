"""Calls take about a second, and end at the next boundary."""

import types

import numpy as np
import pytest

from proximo.training.backend import Snapshot, TimedCalls


class Clock:
    """A clock that only a call moves: ``seconds`` for each update."""

    def __init__(self, seconds):
        self.now, self.seconds = 0.0, seconds

    def monotonic(self):
        return self.now

    def advance(self, state, num_updates):
        self.now += self.seconds * num_updates
        return state + num_updates, {"x": np.zeros((1, num_updates))}


def timed(monkeypatch, seconds, max_updates=None):
    clock = Clock(seconds)
    monkeypatch.setattr("proximo.training.backend.time", clock)
    config = types.SimpleNamespace(batch_size=8, updates_per_call=50)
    backend = types.SimpleNamespace(advance=clock.advance, config=config)
    return clock, TimedCalls(backend, lambda function, *arguments: function(*arguments), max_updates)


@pytest.mark.parametrize(
    ("seconds", "max_updates", "expected"), [(0.1, None, 10), (0.4, None, 2), (3.0, None, 1), (1e-6, None, 50), (0.1, 7, 7)]
)
def test_a_call_takes_about_a_second_and_does_not_pass_the_boundary(monkeypatch, seconds, max_updates, expected):
    _, calls = timed(monkeypatch, seconds, max_updates)
    assert calls.num_updates(0, 100) == (max_updates or 1)
    after = calls.advance(Snapshot(0, 3, 24), 1)
    assert after[:3] == (1, 4, 32)
    assert calls.last_seconds == pytest.approx(seconds)
    assert [calls.num_updates(1, boundary) for boundary in (100, 4, 2)] == [expected, min(expected, 3), 1]


def test_pace_averages_calls_but_the_next_size_follows_the_last(monkeypatch):
    clock, calls = timed(monkeypatch, 0.1)
    assert calls.seconds_per_update == 0
    calls.advance(Snapshot(0, 0, 0), 9)
    clock.seconds = 1.1
    calls.advance(Snapshot(0, 0, 0), 1)
    assert calls.seconds_per_update == pytest.approx(0.2)
    assert calls.num_updates(10, 100) == 1
