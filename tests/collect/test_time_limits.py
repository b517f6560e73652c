"""Truncation by the driver, by gymnax and by a start out of phase."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

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
def collected(env=Endless, **settings):
    collector = small_collector(env(), **{"num_envs": 4, "num_steps": 16, "normalize_observation": False, **settings})
    state = collector.init(jax.random.key(0))
    _, rollout, metrics = jax.jit(collector.collect)(state.learner.policy, state.collector)
    return state.learner.policy, rollout, metrics


def test_max_episode_steps_truncates_and_does_not_terminate():
    _, rollout, metrics = collected(max_episode_steps=5)
    expected = np.isin(np.arange(16), (4, 9, 14))[:, None].repeat(4, 1)
    assert np.array_equal(rollout.truncated, expected)
    assert not np.any(rollout.terminated)
    assert np.array_equal(rollout.episode_start[1:], expected[:-1])
    assert np.array_equal(rollout.bootstrap_value != 0.0, rollout.truncated)
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


def test_truncated_episode_bootstraps_from_final_observation_and_the_right_memory():
    expected, got = final_values()
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    for mutation in ({"first_of_final": True}, {"memory_rows": 4}, {"final_time": 4.0, "memory_rows": 4}, {"final_time": 0.0}):
        wrong, got = final_values(**mutation)
        assert np.abs(np.asarray(got - wrong)).min() > 1e-5


def test_staggered_start_puts_the_ends_out_of_phase():
    """Episodes that it cuts short are bootstrapped and not recorded; later ones have their full length."""
    _, rollout, metrics = collected(max_episode_steps=5, stagger_steps=5, num_envs=16)
    truncated = np.asarray(rollout.truncated)
    assert set(truncated.argmax(0).tolist()) == {0, 1, 2, 3, 4}
    for column in truncated.T:
        assert set(np.diff(np.flatnonzero(column)).tolist()) == {5}
    assert np.array_equal(rollout.bootstrap_value != 0.0, truncated)
    assert float(metrics["rollout/length_mean"]) == 5.0
    assert float(metrics["rollout/return_mean"]) == 15.0
    cut_short = (truncated.argmax(0) < 4).sum()
    assert truncated.sum() - 16 <= float(metrics["rollout/episodes"]) <= truncated.sum() - cut_short


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
    state, collect = collector.init(jax.random.key(0)), jax.jit(collector.collect)
    between, first, _ = collect(state.learner.policy, state.collector)
    _, second, _ = collect(state.learner.policy, between)
    truncated = np.concatenate([first.truncated, second.truncated])[:, 0]
    assert np.flatnonzero(truncated).tolist() == [4, 9, 14]
