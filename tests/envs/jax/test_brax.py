"""brax: transitions equal those of its environment and of its episode wrapper."""

import jax
import numpy as np
import pytest

from proximo.envs import make_env
from proximo.envs.jax import brax

from adapted import LEGACY, played, same

library = pytest.importorskip("brax.envs")
LIMIT = 4


@pytest.fixture(scope="module")
def pendulum():
    return make_env("brax:inverted_pendulum", {"backend": "spring", "episode_length": LIMIT})


@pytest.fixture(scope="module")
def rows(pendulum):
    return played(pendulum, 12)


def test_states_and_ends_equal_those_of_brax(rows):
    """Also after the end, because nothing is reset inside."""
    ours, actions, keys = rows
    env = library.training.EpisodeWrapper(library.get_environment("inverted_pendulum", backend="spring"), LIMIT, 1)
    step = jax.jit(env.step)
    state = jax.jit(env.reset)(LEGACY(keys[0]))
    for (inner, observation, reward, terminated, truncated), action in zip(ours[1:], actions, strict=True):
        state = step(state, action)
        assert same(inner[0].pipeline_state, state.pipeline_state)
        assert same((observation, reward), (state.obs, state.reward))
        assert terminated == bool(state.done > state.info["truncation"])
        assert truncated == bool(state.info["truncation"])


def test_the_limit_truncates_and_a_fall_terminates(pendulum, rows):
    ours, *_ = rows
    assert [row[4] for row in ours[: LIMIT + 1]] == [False] * LIMIT + [True]
    fallen, *_ = played(pendulum, 60, seed=1)
    ends = np.array([row[3:] for row in fallen])
    first = int(np.flatnonzero(ends[:, 0])[0])
    assert first > LIMIT
    assert not ends[first, 1]


def test_all_but_two_unusable_environments_are_listed():
    assert set(brax.names()) == set(library._envs) - {"swimmer", "fast"}
