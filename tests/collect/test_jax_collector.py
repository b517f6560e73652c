"""Rollouts of JAX environments: no transition is lost or repeated, and time limits truncate."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.collect import JaxCollector
from proximo.envs import make_env
from proximo.ppo.minibatches import run_burn_in
from proximo.types import BurnIn

from helpers import REMEMBERING, difference, drawn_policy, small_collector, small_config
from toys import Counting, RandomEnds

STEPS, ENVS = 10, 4


@functools.cache
def two_rollouts(burn_in=0):
    settings = {"memory": "gru", "normalize_observation": False, "sequence_length": 5, "burn_in": burn_in}
    collector = small_collector(Counting(), num_steps=STEPS, **settings)
    policy, collect = drawn_policy(collector.env, collector.config), jax.jit(collector.collect)
    state = jax.jit(lambda key: collector.init(key).collector)(jax.random.key(0))
    between, first, metrics_1 = collect(policy, state)
    end, second, metrics_2 = collect(policy, between)
    return policy, (first, second), end, (metrics_1, metrics_2)


def joined(rollouts, name):
    return np.concatenate([np.asarray(getattr(rollout, name)) for rollout in rollouts])


def broken_steps(rollouts):
    """Number of steps that do not follow the previous one: time counts up within an episode, and restarts at 0 after its end."""
    observation, reward, episode_start = (joined(rollouts, name) for name in ("observation", "reward", "episode_start"))
    done = joined(rollouts, "terminated") | joined(rollouts, "truncated")
    time = observation[..., 0]
    expected_time = np.where(done[:-1], 0.0, reward[:-1])
    wrong = (time[1:] != expected_time) | (episode_start[1:] != done[:-1]) | (reward[1:] != time[1:] + 1)
    return int(wrong.sum())


def test_every_transition_appears_exactly_once():
    _, rollouts, _, _ = two_rollouts()
    assert joined(rollouts, "terminated").sum() > 8
    assert broken_steps(rollouts) == 0
    assert np.all(joined(rollouts, "episode_start")[0])
    # The check detects lost, repeated and shifted steps at the boundary.
    first, second = rollouts
    shortened = jax.tree.map(lambda x: x[:-1], dataclasses.replace(first, memory=(), last_memory=()))
    assert broken_steps((shortened, second)) > 0
    assert broken_steps((first, first)) > 0
    shifted = dataclasses.replace(second, episode_start=jnp.roll(second.episode_start, 1, 0))
    assert broken_steps((first, shifted)) > 0


def test_next_rollout_begins_where_the_previous_one_ended():
    _, (first, second), end, _ = two_rollouts()
    assert jnp.array_equal(first.last_observation, second.observation[0])
    assert jnp.array_equal(first.last_episode_start, second.episode_start[0])
    assert difference(first.last_value, second.value[0]) < 1e-6
    assert all(
        jnp.array_equal(a, b[0]) for a, b in zip(jax.tree.leaves(first.last_memory), jax.tree.leaves(second.memory), strict=True)
    )
    assert jnp.array_equal(second.last_observation, end.observation)


def test_stored_memories_precede_each_sequence_of_one_long_rollout():
    (policy, rollouts, end, _), length = two_rollouts(), 5
    observation, episode_start = jnp.asarray(joined(rollouts, "observation")), jnp.asarray(joined(rollouts, "episode_start"))
    stored = [np.asarray(leaf) for rollout in rollouts for leaf in jax.tree.leaves(rollout.memory)]
    unroll = jax.jit(lambda memory, x, episode_start: policy.unroll(memory, x, episode_start, jnp.ones_like(episode_start))[0])
    memory = policy.init_memory(ENVS)
    for before in np.concatenate(stored):
        assert difference(memory, (before,)) < 1e-5
        memory = unroll(memory, observation[:length], episode_start[:length])
        observation, episode_start = observation[length:], episode_start[length:]
    assert difference(memory, end.memory) < 1e-5


def test_statistics_count_only_complete_episodes():
    _, rollouts, _, metrics = two_rollouts()
    ends = 0
    for rollout, metric in zip(rollouts, metrics, strict=True):
        done = np.asarray(rollout.terminated)
        lengths = np.asarray(rollout.reward)[done]
        ends += len(lengths)
        assert float(metric["rollout/episodes"]) == len(lengths)
        assert float(metric["rollout/length_mean"]) == pytest.approx(lengths.mean())
        assert float(metric["rollout/return_mean"]) == pytest.approx((lengths * (lengths + 1) / 2).mean())
        for name, x in (("length", lengths), ("return", lengths * (lengths + 1) / 2)):
            for statistic in ("std", "min", "max"):
                assert float(metric[f"rollout/{name}_{statistic}"]) == pytest.approx(getattr(x, statistic)(), rel=1e-5)
        diluted = np.asarray(rollout.reward).sum() / done.size
        assert float(metric["rollout/return_mean"]) != pytest.approx(diluted, rel=0.05)
    assert ends > 8


def test_burn_in_reproduces_the_last_memory_of_the_previous_rollout():
    """Burn-in from the stored memory over the stored steps gives the last memory of acting. An empty memory, an older one, or
    other steps give a different memory."""
    policy, (first, second), _, _ = two_rollouts(3)
    before = jax.tree.map(lambda m: m[0], second.memory)
    burnt_in = jax.jit(run_burn_in)
    assert difference(burnt_in(policy, before, second.burn_in_steps), first.last_memory) < 1e-6
    empty, older = policy.init_memory(ENVS), jax.tree.map(lambda m: m[0], first.memory)
    late = jax.tree.map(lambda x: x[-4:-1], (first.observation, first.episode_start, first.valid))
    for memory, steps in ((empty, second.burn_in_steps), (older, second.burn_in_steps), (before, BurnIn(*late))):
        assert difference(burnt_in(policy, memory, steps), first.last_memory) > 1e-3


def test_carried_memory_observes_every_reward_across_episodes_and_rollouts():
    collector = small_collector(RandomEnds(), **REMEMBERING["observing over episodes"], sequence_length=4)
    state = collector.init(jax.random.key(0))
    collect, made, collector = jax.jit(collector.collect), [], state.collector
    for _ in range(2):
        collector, rollout, _ = collect(state.learner.policy, collector)
        made.append(rollout)
    seen = {name: np.concatenate([rollout.observation[name] for rollout in made]) for name in made[0].observation}
    assert joined(made, "episode_start")[1:].sum() > 4
    assert (seen["previous_reward"][1:, :, 0] == joined(made, "reward")[:-1]).all()
    assert (seen["previous_action"][1:] == np.eye(2)[joined(made, "action")[:-1]]).all()
    assert not seen["previous_reward"][0].any()
    assert not seen["previous_action"][0].any()
    assert (made[0].last_observation["previous_reward"] == made[1].observation["previous_reward"][0]).all()


class Endless(Counting):
    """Counts without an end of its own."""

    default_params = {"shortest": 1000, "longest": 1000}  # noqa: RUF012

    def _observe(self, time, length):
        return jnp.stack([time / 10, 0.0])


@functools.cache
def collected(env=Endless, **settings):
    collector = small_collector(env(), **{"num_envs": 4, "num_steps": 16, "normalize_observation": False, **settings})
    state, collect = collector.init(jax.random.key(0)), jax.jit(collector.collect)
    after, rollout, metrics = collect(state.learner.policy, state.collector)
    return state.learner.policy, rollout, metrics, lambda: collect(state.learner.policy, after)[1]


def test_max_episode_steps_truncates_and_does_not_terminate():
    _, rollout, metrics, next_rollout = collected(max_episode_steps=5)
    expected = np.isin(np.arange(16), (4, 9, 14))[:, None].repeat(4, 1)
    assert np.array_equal(rollout.truncated, expected)
    assert not np.any(rollout.terminated)
    assert np.array_equal(rollout.episode_start[1:], expected[:-1])
    assert np.array_equal(rollout.bootstrap_value != 0.0, rollout.truncated)
    assert float(metrics["rollout/length_mean"]) == 5.0
    assert float(metrics["rollout/episodes"]) == 12.0
    assert np.flatnonzero(next_rollout().truncated[:, 0]).tolist() == [3, 8, 13], "counted across rollouts"


def test_an_episode_that_terminates_at_the_limit_is_not_truncated():
    class OfFive(Counting):
        default_params = {"shortest": 5, "longest": 5}  # noqa: RUF012

    _, rollout, *_ = collected(OfFive, max_episode_steps=5)
    assert np.any(rollout.terminated)
    assert not np.any(rollout.truncated)
    assert not np.any(rollout.bootstrap_value)


def final_values(first_of_final=False, memory_rows=5, final_time=5.0):
    """The value at the end of the first episode (rows 0 … 4), read as the flags say."""
    policy, rollout, *_ = collected(max_episode_steps=5, memory="gru", sequence_length=4)
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
    _, rollout, metrics, _ = collected(max_episode_steps=5, stagger_steps=5, num_envs=16)
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
