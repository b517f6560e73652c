"""Measuring the speed of an environment takes seconds, however long its steps take."""

import pytest

from proximo.checks import jax_play


def calls_of(seconds_of):
    calls = []

    def timed(steps):
        calls.append(steps)
        return seconds_of(steps, sum(calls))

    return calls, jax_play.paced(timed)


def test_fast_environment_is_timed_over_all_steps():
    calls, speed = calls_of(lambda steps, _: 1e-5 * steps)
    assert speed == pytest.approx(1e5)
    assert sum(calls) >= jax_play.SPEED_STEPS
    assert max(calls) == jax_play.STEPS


def test_slow_step_is_timed_once():
    calls, speed = calls_of(lambda steps, _: 40.0 * steps)
    assert (calls, speed) == ([1], 1 / 40)


def test_slow_resets_end_the_timing_soon():
    """Steps of 10 ms, and of 2 s from the hundredth on."""
    calls, _ = calls_of(lambda steps, done: 0.01 * steps + 2.0 * max(0, min(steps, done - 100)))
    over = sum(0.01 * steps for steps in calls) + 2.0 * max(0, sum(calls) - 100)
    assert over < jax_play.SPEED_SECONDS + 2.0 * 16
