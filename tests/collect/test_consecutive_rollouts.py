"""Between two consecutive rollouts, no transition is lost and none is repeated."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.ppo.minibatches import run_burn_in
from proximo.types import BurnIn

from helpers import REMEMBERING, difference, drawn_policy, small_collector
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
