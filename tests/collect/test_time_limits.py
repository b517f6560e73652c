"""Truncation by the driver, by gymnax and by a start out of phase."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.collect import JaxCollector
from proximo.envs import make_env

from helpers import small_collector, small_config
from toys import Counting


class Endless(Counting):
    """Counts without an end of its own."""

    default_params = {"shortest": 1000, "longest": 1000}  # noqa: RUF012

    def _observe(self, time, length):
        return jnp.stack([time / 10, 0.0])


@functools.cache
def collected(env=Endless, num_envs=4, **settings):
    collector = small_collector(env(), num_envs=num_envs, num_steps=16, normalize_observation=False, **settings)
    state = collector.init(jax.random.key(0))
    _, rollout, metrics = jax.jit(collector.collect)(state.learner.policy, state.collector)
    return state.learner.policy, rollout, metrics


def test_max_episode_steps_truncates_and_does_not_terminate():
    _, rollout, metrics = collected(max_episode_steps=5)
    expected = np.isin(np.arange(16), (4, 9, 14))[:, None].repeat(4, 1)
    assert np.array_equal(rollout.truncated, expected)
    assert not np.any(rollout.terminated)
    assert np.array_equal(rollout.episode_start[1:], expected[:-1])
    assert float(metrics["rollout/length_mean"]) == 5.0
    assert float(metrics["rollout/episodes"]) == 12.0


def test_an_episode_that_terminates_at_the_limit_is_not_truncated():
    class OfFive(Counting):
        default_params = {"shortest": 5, "longest": 5}  # noqa: RUF012

    _, rollout, _ = collected(OfFive, max_episode_steps=5)
    assert np.any(rollout.terminated)
    assert not np.any(rollout.truncated)
    assert not np.any(rollout.bootstrap_value)


def final_values(first_of_final=False, memory_rows=5, final_time=5.0):
    """The value at the end of the first episode (rows 0 … 4), read as the flags say."""
    policy, rollout, _ = collected(max_episode_steps=5, memory="gru", sequence_length=4)
    rows = slice(0, memory_rows)
    valid = jnp.ones((memory_rows, 4), bool)
    memory, _, _ = policy.unroll(policy.init_memory(4), rollout.observation[rows], rollout.episode_start[rows], valid)
    final = jnp.tile(jnp.array([final_time / 10, 0.0]), (4, 1))
    return policy.value(memory, final, jnp.full(4, first_of_final)), rollout.bootstrap_value[4]


def test_truncated_episode_bootstraps_from_final_observation():
    expected, got = final_values()
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "mutation", [{"first_of_final": True}, {"memory_rows": 4}, {"final_time": 4.0, "memory_rows": 4}, {"final_time": 0.0}]
)
def test_bootstrap_value_depends_on_the_right_memory_and_observation(mutation):
    wrong, got = final_values(**mutation)
    assert np.abs(np.asarray(got - wrong)).min() > 1e-5


def test_only_truncated_episodes_have_a_bootstrap_value():
    _, rollout, _ = collected(max_episode_steps=5, memory="gru", sequence_length=4)
    assert np.array_equal(rollout.bootstrap_value != 0.0, rollout.truncated)


def test_a_staggered_start_puts_the_ends_out_of_phase():
    _, rollout, _ = collected(max_episode_steps=5, stagger_steps=5, num_envs=16)
    first_ends = np.asarray(rollout.truncated).argmax(0)
    assert set(first_ends.tolist()) == {0, 1, 2, 3, 4}
    _, in_phase, _ = collected(max_episode_steps=5)
    assert set(np.asarray(in_phase.truncated).argmax(0).tolist()) == {4}


def test_after_the_staggered_start_every_episode_has_its_full_length():
    _, rollout, _ = collected(max_episode_steps=5, stagger_steps=5, num_envs=16)
    for column in np.asarray(rollout.truncated).T:
        assert set(np.diff(np.flatnonzero(column)).tolist()) == {5}


def test_episodes_cut_by_the_staggered_start_are_not_recorded():
    _, rollout, metrics = collected(max_episode_steps=5, stagger_steps=5, num_envs=16)
    assert float(metrics["rollout/length_mean"]) == 5.0
    assert float(metrics["rollout/return_mean"]) == 15.0
    cut_short = (np.asarray(rollout.truncated).argmax(0) < 4).sum()
    recorded, ended = float(metrics["rollout/episodes"]), np.asarray(rollout.truncated).sum()
    assert ended - 16 <= recorded <= ended - cut_short


def test_staggered_start_bootstraps_cut_episodes():
    _, rollout, _ = collected(max_episode_steps=5, stagger_steps=5, num_envs=16)
    assert np.array_equal(rollout.bootstrap_value != 0.0, rollout.truncated)


def test_a_time_limit_of_gymnax_is_a_truncation():
    env = make_env("gymnax:Pendulum-v1", {"max_steps_in_episode": 6})
    collector = JaxCollector(small_config(id="gymnax:Pendulum-v1", num_steps=16), env)
    state = collector.init(jax.random.key(0))
    _, rollout, metrics = jax.jit(collector.collect)(state.learner.policy, state.collector)
    assert np.flatnonzero(rollout.truncated[:, 0]).tolist() == [5, 11]
    assert not np.any(rollout.terminated)
    assert np.array_equal(rollout.bootstrap_value != 0.0, rollout.truncated)
    assert float(metrics["rollout/length_mean"]) == 6.0


def test_time_limits_continue_across_two_rollouts():
    collector = small_collector(Endless(), num_steps=8, max_episode_steps=5)
    state = collector.init(jax.random.key(0))
    collect = jax.jit(collector.collect)
    between, episode_start, _ = collect(state.learner.policy, state.collector)
    _, second, _ = collect(state.learner.policy, dataclasses.replace(between))
    truncated = np.concatenate([episode_start.truncated, second.truncated])[:, 0]
    assert np.flatnonzero(truncated).tolist() == [4, 9, 14]
