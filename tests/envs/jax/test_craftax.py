"""Craftax: its transitions, and which ends are truncations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.envs import make_env
from proximo.errors import ConfigError
from proximo.spaces import Box

from adapted import LEGACY, played, same

library = pytest.importorskip("craftax.craftax_env")
CLASSIC, LIMIT = "Craftax-Classic-Symbolic-v1", 5


@functools.cache
def classic(**settings):
    return make_env(f"craftax:{CLASSIC}", {"max_timesteps": LIMIT, **settings})


@functools.cache
def rows():
    return played(classic(), LIMIT + 2)


def test_states_equal_those_of_craftax_and_ends_are_separated():
    ours, actions, keys = rows()
    env = library.make_craftax_env_from_name(CLASSIC, auto_reset=False)
    params = env.default_params.replace(max_timesteps=LIMIT)
    observation, state = env.reset(LEGACY(keys[0]), params)
    assert same((ours[0][0], ours[0][1]), (state, observation))
    for (inner, seen, reward, terminated, truncated), action, key in zip(ours[1:], actions, keys[1:], strict=True):
        observation, state, own_reward, done, _ = env.step(LEGACY(key), state, action, params)
        assert same((inner, seen, reward), (state, observation, own_reward))
        assert (terminated or truncated) == bool(done)


def test_the_limit_truncates_and_death_terminates_even_there():
    ours, *_ = rows()
    assert [row[3:] for row in ours[: LIMIT + 1]] == [(False, False)] * LIMIT + [(False, True)]
    dying = ours[LIMIT - 1][0].replace(player_health=jnp.int32(-9))
    params = classic().default_params
    *_, terminated, truncated, _ = jax.jit(classic().step)(jax.random.key(0), dying, jnp.int32(0), params)
    assert (bool(terminated), bool(truncated)) == (True, False)


def test_separate_map_is_the_same_observation_for_a_cnn():
    apart, (ours, *_) = classic(separate_map=True), rows()
    height, width, channels = apart.observation_space.spaces[1][1].shape
    assert [name for name, _ in apart.observation_space.spaces] == ["inventory", "map"]
    separate, *_ = played(apart, LIMIT + 2)
    for (_, seen, *_), (_, flat, *_) in zip(separate, ours, strict=True):
        assert seen["map"].shape == (height, width, channels)
        np.testing.assert_array_equal(np.concatenate([np.ravel(seen["map"]), seen["inventory"]]), flat)
        # The one-hot vector of a cell is along the last axis: one block and at most one creature.
        assert set(np.unique(seen["map"].sum(-1))) <= {1.0, 2.0}


@pytest.mark.slow
def test_pictures_are_bytes_of_what_craftax_gives():
    """Craftax prepares its textures for minutes when the first picture is drawn, and saves them."""
    name = "Craftax-Classic-Pixels-v1"
    env = make_env(f"craftax:{name}")
    _, seen = env.reset(jax.random.key(0), env.default_params)
    raw = library.make_craftax_env_from_name(name, auto_reset=False)
    own, _ = raw.reset(LEGACY(jax.random.key(0)), raw.default_params)
    assert env.observation_space == Box(own.shape, 0.0, 255.0, "uint8")
    assert seen.dtype == np.uint8
    assert np.abs(np.asarray(seen) - 255 * np.asarray(own)).max() <= 0.51
    assert seen.max() > 100
    with pytest.raises(ConfigError, match="no parameter 'separate_map'"):
        make_env(f"craftax:{name}", {"separate_map": True})
