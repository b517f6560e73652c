"""The speed of an environment is told in seconds, however long a step of it takes."""

import pytest

from proximo.checks import in_jax


def calls_of(seconds_of):
    calls = []

    def timed(steps):
        calls.append(steps)
        return seconds_of(steps, sum(calls))

    return calls, in_jax.paced(timed)


def test_a_quick_environment_is_timed_over_all_its_steps():
    calls, speed = calls_of(lambda steps, _: 1e-5 * steps)
    assert speed == pytest.approx(1e5)
    assert sum(calls) >= in_jax.SPEED_STEPS
    assert max(calls) == in_jax.STEPS


def test_a_step_of_many_seconds_is_timed_once():
    calls, speed = calls_of(lambda steps, _: 40.0 * steps)
    assert (calls, speed) == ([1], 1 / 40)


def test_resets_that_take_long_end_the_timing_soon():
    """Steps of 10 ms, and of 2 s from the hundredth on."""
    calls, _ = calls_of(lambda steps, done: 0.01 * steps + 2.0 * max(0, min(steps, done - 100)))
    over = sum(0.01 * steps for steps in calls) + 2.0 * max(0, sum(calls) - 100)
    assert over < in_jax.SPEED_SECONDS + 2.0 * 16
