"""What is seen in an update is what it learned from, and how far it went."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo import ppo
from proximo.collect import JaxTrainer
from proximo.math import loss_terms, masked_statistics
from proximo.ppo import inspection

from helpers import REMEMBERING, drawn_policy, small_collector

KINDS = ("burning in and observing",)


@pytest.fixture(scope="module", params=KINDS)
def update(request):
    """A collector, the state before the update, its rollout, the state after the update."""
    collector = small_collector(**REMEMBERING[request.param], sequence_length=4, normalize_reward=True, clip_reward="sign")
    state, collect, learn = jax.jit(collector.init)(jax.random.key(0)), jax.jit(collector.collect), jax.jit(ppo.update)
    learner = dataclasses.replace(state.learner, policy=drawn_policy(collector.env, collector.config))
    collected, rollout, _ = collect(learner.policy, state.collector)
    state = dataclasses.replace(state, learner=learn(learner, rollout)[0], collector=collected)
    rollout, rows = jax.jit(JaxTrainer(collector).inspect_before)(state)
    learned, metrics = learn(state.learner, rollout)
    return collector, state, rollout, rows, learned, metrics


def test_the_rollout_is_the_one_that_the_update_collects(update):
    collector, state, rollout, *_ = update
    _, collected, _ = jax.jit(collector.collect)(state.learner.policy, state.collector)
    np.testing.assert_allclose(rollout.reward, collected.reward, rtol=1e-6)
    np.testing.assert_array_equal(rollout.action, collected.action)


def test_returns_and_advantages_are_those_that_the_update_learns_from(update):
    _, _, rollout, rows, _, metrics = update
    explained = masked_statistics.explained_variance(rollout.value, rows["returns"], rollout.valid)
    assert float(explained) == pytest.approx(float(metrics["explained_variance"]), abs=1e-4)
    np.testing.assert_allclose(rows["returns"] - rollout.value, rows["advantages"], atol=1e-5)
    other = masked_statistics.explained_variance(rollout.value, rows["advantages"], rollout.valid)
    assert float(other) != pytest.approx(float(metrics["explained_variance"]), abs=1e-2)


def test_ratios_are_one_only_before_learning(update):
    _, state, rollout, _, learned, _ = update
    ratios = jax.jit(inspection.ratios)
    np.testing.assert_allclose(ratios(state.learner, state.learner.policy, rollout), 1.0, atol=1e-5)
    behind = ratios(state.learner, learned.policy, rollout)
    assert float(jnp.max(jnp.abs(behind - 1))) > 1e-3
    assert behind.shape == rollout.reward.shape


def test_ratios_use_the_normalizer_from_before_the_update(update):
    _, state, rollout, *_ = update
    policy = state.learner.policy
    moved = dataclasses.replace(policy, normalizer=jax.tree.map(lambda x: x + 1, policy.normalizer))
    np.testing.assert_allclose(jax.jit(inspection.ratios)(state.learner, moved, rollout), 1.0, atol=1e-5)


def test_divergence_of_the_ratios_has_the_reported_magnitude(update):
    _, state, rollout, _, learned, metrics = update
    behind = jax.jit(inspection.ratios)(state.learner, learned.policy, rollout)
    kl = float(masked_statistics.masked_mean(loss_terms.approximate_kl(jnp.log(behind)), rollout.valid))
    assert kl > 0.3 * float(metrics["approx_kl"]), "the last minibatch stands farther off than the mean of all"
