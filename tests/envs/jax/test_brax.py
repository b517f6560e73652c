"""brax: transitions equal those of its environment and of its episode wrapper."""

import functools

import jax
import numpy as np
import pytest

from proximo.envs import make_env
from proximo.envs.jax import brax
from proximo.errors import ConfigError, EnvError
from proximo.spaces import Box, Dict

from adapted import LEGACY, played, same, traceable, trained

library = pytest.importorskip("brax.envs")
LIMIT = 4


@functools.cache
def pendulum(**settings):
    return make_env("brax:inverted_pendulum", {"backend": "spring", "episode_length": LIMIT, **settings})


@functools.cache
def rows(steps=12):
    return played(pendulum(), steps)


def test_states_and_ends_equal_those_of_brax():
    """Also after the end, because nothing is reset inside."""
    ours, actions, keys = rows()
    env = library.training.EpisodeWrapper(library.get_environment("inverted_pendulum", backend="spring"), LIMIT, 1)
    step = jax.jit(env.step)
    state = jax.jit(env.reset)(LEGACY(keys[0]))
    for (inner, observation, reward, terminated, truncated), action in zip(ours[1:], actions, strict=True):
        state = step(state, action)
        assert same(inner[0].pipeline_state, state.pipeline_state)
        assert same((observation, reward), (state.obs, state.reward))
        assert terminated == bool(state.done > state.info["truncation"])
        assert truncated == bool(state.info["truncation"])


def test_spaces_are_those_of_brax():
    env = library.get_environment("inverted_pendulum", backend="spring")
    assert pendulum().observation_space == Box((env.observation_size,))
    assert pendulum().action_space == Box((env.action_size,), -1.0, 1.0)
    parts = make_env("brax:fast", {"obs_mode": "dict_state"}).observation_space
    assert isinstance(parts, Dict)


def test_the_limit_truncates_and_a_fall_terminates():
    ours, *_ = rows()
    assert [row[4] for row in ours[: LIMIT + 1]] == [False] * LIMIT + [True]
    fallen, *_ = played(pendulum(), 60, seed=1)
    ends = np.array([row[3:] for row in fallen])
    first = int(np.flatnonzero(ends[:, 0])[0])
    assert first > LIMIT
    assert not ends[first, 1]


def test_brax_environment_trains():
    metrics = trained(pendulum(), num_steps=2 * LIMIT)
    assert metrics["rollout/length_mean"].max() == LIMIT


def test_unsupported_brax_environment_or_parameter_raises():
    with pytest.raises(
        EnvError, match=r"brax has no environment 'antt' \(did you mean 'ant'\?\); `proximo envs brax` lists them"
    ):
        make_env("brax:antt")
    with pytest.raises(EnvError, match=r"brax:swimmer cannot be trained: brax 0.14.2"):
        make_env("brax:swimmer")
    with pytest.raises(ConfigError, match=r"brax:ant has no parameter 'backnd' \(did you mean 'backend'\?\)"):
        make_env("brax:ant", {"backnd": "spring"})
    with pytest.raises(ConfigError, match=r"episode_length = 0: expected a number of steps, 1"):
        make_env("brax:ant", {"episode_length": 0})
    with pytest.raises(EnvError, match=r"Making brax:ant raised ValueError: backend should be in"):
        make_env("brax:ant", {"backend": "hard"})


def test_all_but_two_unusable_environments_are_listed():
    assert set(brax.names()) == set(library._envs) - {"swimmer", "fast"}


@pytest.mark.slow
def test_all_can_be_traced():
    traceable(brax.names(), lambda name: make_env(f"brax:{name}"))
