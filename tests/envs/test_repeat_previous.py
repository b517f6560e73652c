"""The rules of RepeatPrevious."""

import jax
import numpy as np
import pytest

from proximo.collect.jax_vector import JaxAsGymnasium
from proximo.envs.tasks import RepeatPrevious


def play(answer, **settings):
    """Return symbols, rewards, truncations and successes of one episode; ``answer(symbols so far)`` acts."""
    env = JaxAsGymnasium(RepeatPrevious(settings), jax.random.key(0))
    symbols, rows, truncated = [int(env.reset(seed=0)[0])], [], False
    while not truncated and len(rows) < 1000:
        symbol, reward, terminated, truncated, info = env.step(answer(symbols))
        assert not terminated
        symbols.append(int(symbol))
        rows.append((float(reward), bool(truncated), bool(info["success"])))
    return symbols, *map(list, zip(*rows, strict=True))


def remember(lag):
    return lambda symbols: symbols[-1 - lag] if len(symbols) > lag else 0


@pytest.mark.parametrize(("lag", "symbols", "steps"), [(4, 4, 64), (1, 2, 3), (16, 5, 40)])
def test_symbol_from_lag_steps_ago_is_right(lag, symbols, steps):
    shown, rewards, ends, successes = play(remember(lag), lag=lag, symbols=symbols, max_steps=steps)
    assert rewards[:lag] == [0.0] * lag
    np.testing.assert_allclose(rewards[lag:], 1.0 / (steps - lag), rtol=1e-6)
    assert ends == [False] * (steps - 1) + [True]
    assert successes == [False] * (steps - 1) + [True]
    assert set(shown) <= set(range(symbols))


@pytest.mark.parametrize("late", [3, 5])
def test_repeating_the_symbol_of_another_step_is_wrong(late):
    _, rewards, _, successes = play(remember(late), max_steps=400)
    assert 0.15 < sum(rewards) < 0.35
    assert not any(successes)
