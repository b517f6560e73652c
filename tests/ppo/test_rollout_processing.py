"""What happens to a rollout before and after the gradient steps: scaling, recomputing, normalizer statistics."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learning import probes
from proximo import ppo
from proximo.math.running_statistics import RunningStatistics
from proximo.ppo.hyperparameters import StaticSettings
from proximo.ppo.rollout_processing import recompute_values, scale_rewards, update_normalizer
from proximo.ppo.state import RewardNormalizer

from helpers import collected, difference, small_collector, small_config, spoiled, trainer


def test_normalizer_includes_exactly_the_valid_steps():
    learner, rollout = collected()
    assert learner.policy.normalizer.count.tolist() == [0, 0]
    seen = jax.jit(update_normalizer)(learner.policy, spoiled(rollout)).normalizer
    rows = np.asarray(rollout.observation)[:-2].reshape(-1, 3)
    np.testing.assert_allclose(seen.mean, rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(seen.variance, rows.var(0), rtol=1e-4)
    assert seen.count.tolist() == [len(rows), 0]
    # An update includes them in the same way: what the normalizer sees does not depend on the parameters.
    t = trainer("gru")
    after, _ = t.advance(t.init(0), 1)
    assert difference(after.learner.policy.normalizer, jax.jit(update_normalizer)(learner.policy, rollout).normalizer) < 1e-6


def rewards(values, terminated, valid, running):
    """A scale and a rollout of one environment."""
    learner, rollout = collected()
    column = functools.partial(jnp.reshape, shape=(-1, 1))
    steps = len(values)
    per_row = ("observation", "episode_start", "action", "log_prob", "value", "bootstrap_value")
    rollout = dataclasses.replace(
        rollout,
        **{name: getattr(rollout, name)[:steps, :1] for name in per_row},
        **{name: getattr(rollout, name)[:1] for name in ("last_observation", "last_episode_start", "last_value")},
        reward=column(jnp.array(values)),
        terminated=column(jnp.array(terminated)),
        truncated=jnp.zeros((steps, 1), bool),
        valid=column(jnp.array(valid)),
        memory=(),
        last_memory=(),
    )
    hyperparameters = dataclasses.replace(learner.hyperparameters, gamma=jnp.array(0.5))
    scale = RewardNormalizer(RunningStatistics.of_shape(()), jnp.array([running]))
    return dataclasses.replace(learner, reward_normalizer=scale, hyperparameters=hyperparameters), rollout


@pytest.mark.parametrize("factor", [1.0, 100.0])
@pytest.mark.parametrize("padded", [False, True])
def test_rewards_are_scaled_by_discounted_return_by_hand(padded, factor):
    # Returns 2·½+1 = 2, 2·½+3 = 4, then a new episode: 2. Their variance is 8/9. ``reward_scale`` cancels.
    valid = [True, True, False, True] if padded else [True, True, True]
    given, terminated = ([1.0, 3.0, 50.0, 2.0], [False, True, True, False]) if padded else ([1.0, 3.0, 2.0], [False, True, False])
    state, rollout = rewards(given, terminated, valid, 2.0 * factor)
    state = dataclasses.replace(state, static=StaticSettings.of(small_config(reward_scale=factor)))
    scale, scaled = jax.jit(scale_rewards)(state, rollout)
    np.testing.assert_allclose(scaled.reward[np.array(valid), 0], [1.0606602, 3.1819805, 2.1213203], atol=1e-5)
    assert scale.running_return.tolist() == [2.0 * factor]
    assert rollout.reward[:, 0].tolist() == given


@pytest.mark.parametrize(
    ("normalize", "clip", "expected"), [("auto", "none", True), ("auto", "sign", False), (True, "sign", True)]
)
def test_auto_normalizes_rewards_that_are_not_clipped(normalize, clip, expected):
    assert small_config(normalize_reward=normalize, clip_reward=clip).ppo.normalizes_reward == expected


def test_episode_returns_stay_those_of_the_environment():
    raw, scaled = (
        jax.jit(collector.collect)(state.learner.policy, state.collector)[2]
        for collector in (small_collector(), small_collector(clip_reward="sign", reward_scale=0.01))
        for state in [collector.init(jax.random.key(0))]
    )
    assert float(raw["rollout/return_mean"]) == float(scaled["rollout/return_mean"]) != 0.0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [-7.0, 0.0, 0.5]),
        ({"reward_scale": 0.01}, [-0.07, 0.0, 0.005]),
        ({"clip_reward": "sign"}, [-1.0, 0.0, 1.0]),
        ({"clip_reward": "sign", "reward_scale": 100.0}, [-1.0, 0.0, 1.0]),
    ],
)
def test_rewards_are_multiplied_then_clipped(settings, expected):
    state, rollout = rewards([-7.0, 0.0, 0.5], [False] * 3, [True] * 3, 0.0)
    static = StaticSettings.of(small_config(normalize_reward=False, **settings))
    normalizer, scaled = scale_rewards(dataclasses.replace(state, reward_normalizer=None, static=static), rollout)
    assert normalizer is None
    assert scaled.reward[:, 0].tolist() == pytest.approx(expected, abs=1e-9)
    # Divided by the standard deviation of returns, they are clipped to ten.
    state, rollout = rewards([0.0] * 7 + [100.0], [True] * 8, [True] * 8, 0.0)
    statistics = RunningStatistics(jnp.array([1e6, 0.0]), jnp.zeros(()), jnp.ones(()))
    state = dataclasses.replace(state, reward_normalizer=RewardNormalizer(statistics, jnp.zeros(1)))
    assert jax.jit(scale_rewards)(state, rollout)[1].reward[-1, 0] == 10.0


def test_recomputed_values_are_the_stored_ones_until_something_is_learned():
    learner, rollout = collected()
    recompute = jax.jit(recompute_values, static_argnums=2)
    same = recompute(learner.policy, rollout, 4)
    assert difference(same.value, rollout.value) < 1e-5
    assert difference(same.last_value, rollout.last_value) < 1e-5
    changed = recompute(jax.tree.map(lambda x: np.float32(1.1) * np.asarray(x), learner.policy), rollout, 4)
    assert difference(changed.value, rollout.value) > 1e-3
    assert difference(changed.last_value, rollout.last_value) > 1e-3
    assert jnp.array_equal(changed.bootstrap_value, rollout.bootstrap_value)


def test_an_update_with_recomputed_advantages_differs_from_one_without():
    given, rollout = collected("none")
    learned = {}
    for recompute in (False, True):
        # Only advantages reach the gradient. The shared torso changes the values on which they depend.
        config = small_config(recompute_advantage=recompute, learning_rate=1e-2, vf_coef=0.0, towers="shared")
        learner = ppo.init_learner(jax.random.key(1), given.policy, config, ppo.make_hyperparameters(config.ppo))
        learned[recompute], _ = jax.jit(ppo.update)(learner, rollout)
    assert difference(learned[True].policy.actor, learned[False].policy.actor) > 1e-5


def moved(epochs, **settings):
    """Change of the value in one update, in a task with one step and reward 1. Values begin near 0."""
    settings = {"towers": "separate", "normalize_observation": False, "num_minibatches": 1, "learning_rate": 1e-3, **settings}
    collector = small_collector(probes.Probe(lambda state: 0.0, lambda state, action: 1.0), num_epochs=epochs, **settings)
    state = collector.init(jax.random.key(0))
    _, rollout, _ = jax.jit(collector.collect)(state.learner.policy, state.collector)
    learned, _ = jax.jit(ppo.update)(state.learner, rollout)
    value = jax.jit(lambda policy: policy.value(policy.init_memory(4), rollout.observation[0], rollout.episode_start[0]))
    return float(np.mean(value(learned.policy) - rollout.value[0]))


def test_recomputed_values_do_not_move_the_value_clip():
    """Above V_old + 0.1, on the way to the target 1, the clipped loss is constant. More epochs do not move the value further."""
    assert 0.1 < moved(200, clip_value_eps=0.1, recompute_advantage=True) < 0.3
