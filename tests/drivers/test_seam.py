"""Law: between two rollouts nothing is lost and nothing comes twice."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.ppo.batch import warm
from proximo.types import Warmup

from helpers import REMEMBERING, difference, small_driver
from toys import Counting, RandomEnds

STEPS, ENVS = 10, 4


@functools.cache
def two_rollouts(burn_in=0):
    settings = {"memory": "gru", "normalize_observation": False, "sequence_length": 5, "burn_in": burn_in}
    driver = small_driver(Counting(), num_steps=STEPS, **settings)
    state = driver.init(jax.random.key(0))
    collect = jax.jit(driver.collect)
    policy = state.learner.policy
    between, first, metrics_1 = collect(policy, state.collector)
    end, second, metrics_2 = collect(policy, between)
    return policy, (first, second), end, (metrics_1, metrics_2)


def joined(rollouts, name):
    return np.concatenate([np.asarray(getattr(rollout, name)) for rollout in rollouts])


def broken_steps(rollouts):
    """How many rows do not continue the one before: time counts up within an episode and starts at 0 after an end."""
    observation, reward, first = (joined(rollouts, name) for name in ("observation", "reward", "first"))
    done = joined(rollouts, "terminated") | joined(rollouts, "truncated")
    time = observation[..., 0]
    expected_time = np.where(done[:-1], 0.0, reward[:-1])
    wrong = (time[1:] != expected_time) | (first[1:] != done[:-1]) | (reward[1:] != time[1:] + 1)
    return int(wrong.sum())


def test_every_transition_appears_exactly_once():
    _, rollouts, _, _ = two_rollouts()
    assert joined(rollouts, "terminated").sum() > 8
    assert broken_steps(rollouts) == 0
    assert np.all(joined(rollouts, "first")[0])


def test_the_check_detects_a_lost_or_a_repeated_seam():
    _, (first, second), _, _ = two_rollouts()
    rows = jax.tree.map(lambda x: x[:-1], dataclasses.replace(first, memory=(), last_memory=()))
    assert broken_steps((rows, second)) > 0
    assert broken_steps((first, first)) > 0
    shifted = dataclasses.replace(second, first=jnp.roll(second.first, 1, 0))
    assert broken_steps((first, shifted)) > 0


def test_what_follows_the_last_row_begins_the_next_rollout():
    _, (first, second), end, _ = two_rollouts()
    assert jnp.array_equal(first.last_observation, second.observation[0])
    assert jnp.array_equal(first.last_first, second.first[0])
    assert difference(first.last_value, second.value[0]) < 1e-6
    assert all(
        jnp.array_equal(a, b[0]) for a, b in zip(jax.tree.leaves(first.last_memory), jax.tree.leaves(second.memory), strict=True)
    )
    assert jnp.array_equal(second.last_observation, end.observation)


@pytest.mark.parametrize("length", [5])
def test_stored_memories_are_those_before_each_sequence_of_one_long_rollout(length):
    policy, rollouts, end, _ = two_rollouts()
    observation, first = jnp.asarray(joined(rollouts, "observation")), jnp.asarray(joined(rollouts, "first"))
    stored = [np.asarray(leaf) for rollout in rollouts for leaf in jax.tree.leaves(rollout.memory)]
    unroll = jax.jit(lambda memory, x, first: policy.unroll(memory, x, first, jnp.ones_like(first))[0])
    memory = policy.init_memory(ENVS)
    for before in np.concatenate(stored):
        assert difference(memory, (before,)) < 1e-5
        memory = unroll(memory, observation[:length], first[:length])
        observation, first = observation[length:], first[length:]
    assert difference(memory, end.memory) < 1e-5


def test_statistics_count_whole_episodes_and_only_those():
    _, rollouts, _, metrics = two_rollouts()
    ends = 0
    for rollout, metric in zip(rollouts, metrics, strict=True):
        done = np.asarray(rollout.terminated)
        lengths = np.asarray(rollout.reward)[done]
        ends += len(lengths)
        assert float(metric["rollout/episodes"]) == len(lengths)
        assert float(metric["rollout/length_mean"]) == pytest.approx(lengths.mean())
        assert float(metric["rollout/return_mean"]) == pytest.approx((lengths * (lengths + 1) / 2).mean())
        diluted = np.asarray(rollout.reward).sum() / done.size
        assert float(metric["rollout/return_mean"]) != pytest.approx(diluted, rel=0.05)
    assert ends > 8


def test_behind_the_rows_that_are_burnt_in_stands_the_memory_of_the_rollout_before():
    """By one policy: warmed from where the rows begin it is the memory that acting ended with; from nothing, from elsewhere or
    over other rows it is not."""
    policy, (first, second), _, _ = two_rollouts(3)
    before = jax.tree.map(lambda m: m[0], second.memory)
    assert difference(warm(policy, before, second.warmup), first.last_memory) < 1e-6
    empty, older = policy.init_memory(ENVS), jax.tree.map(lambda m: m[0], first.memory)
    late = jax.tree.map(lambda x: x[-4:-1], (first.observation, first.first, first.valid))
    for memory, rows in ((empty, second.warmup), (older, second.warmup), (before, Warmup(*late))):
        assert difference(warm(policy, memory, rows), first.last_memory) > 1e-3


def test_carried_memory_observes_every_reward_across_episodes_and_rollouts():
    driver = small_driver(RandomEnds(), **REMEMBERING["observing over episodes"], sequence_length=4)
    state = driver.init(jax.random.key(0))
    collect, made, collector = jax.jit(driver.collect), [], state.collector
    for _ in range(2):
        collector, rollout, _ = collect(state.learner.policy, collector)
        made.append(rollout)
    seen = {name: np.concatenate([rollout.observation[name] for rollout in made]) for name in made[0].observation}
    assert joined(made, "first")[1:].sum() > 4
    assert (seen["previous_reward"][1:, :, 0] == joined(made, "reward")[:-1]).all()
    assert (seen["previous_action"][1:] == np.eye(2)[joined(made, "action")[:-1]]).all()
    assert not seen["previous_reward"][0].any()
    assert not seen["previous_action"][0].any()
    assert (made[0].last_observation["previous_reward"] == made[1].observation["previous_reward"][0]).all()
