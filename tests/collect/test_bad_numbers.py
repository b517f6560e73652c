"""NaN and infinity: named by their source, and the state stays as it was before them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.collect import JaxTrainer
from proximo.ppo import make_hyperparameters

from helpers import bits, small_collector
from toys import Broken

SOURCES = ("observation", "reward", "loss", "gradient", "parameters")


@functools.cache
def program():
    collector = small_collector(Broken(), num_steps=4, normalize_observation=False)
    return collector, jax.jit(JaxTrainer(collector).advance, static_argnums=2)


def trained(updates, observation=-1, reward=-1, rate=None, vf_coef=0.5):
    """State and metrics after ``updates``; rollout 2 reads the times 4 … 7 and steps to 5 … 8."""
    collector, advance = program()
    state = collector.init(jax.random.key(0))
    params = {"observation": jnp.int32(observation), "reward": jnp.int32(reward)}
    state = dataclasses.replace(state, collector=dataclasses.replace(state.collector, env_params=params))
    h = dataclasses.replace(make_hyperparameters(collector.config.ppo), vf_coef=jnp.float32(vf_coef))
    if rate is not None:
        huge = dataclasses.replace(h.learning_rate, initial=jnp.float32(rate), final=jnp.float32(rate))
        h = dataclasses.replace(h, learning_rate=huge)
    state = dataclasses.replace(state, learner=dataclasses.replace(state.learner, hyperparameters=h))
    return advance(state, jnp.int32(updates), 4)


def flags(metrics, update):
    return {source for source in SOURCES if metrics[f"bad/{source}"][update]}


def test_without_bad_numbers_training_stays_healthy_and_goes_on():
    state, metrics = trained(4)
    assert bool(state.healthy)
    assert not any(flags(metrics, update) for update in range(4))
    assert bits(state.learner) != bits(trained(1)[0].learner)


@pytest.mark.parametrize(("source", "time"), [("observation", 6), ("observation", 8), ("reward", 6)])
def test_non_finite_environment_output_restores_the_last_healthy_state(source, time):
    """At time 8, the observation after the last step of the rollout."""
    state, metrics = trained(4, **{source: time})
    good, _ = trained(1, **{source: time})
    assert flags(metrics, 0) == set()
    assert source in flags(metrics, 1)
    assert not flags(metrics, 1) & ({"observation", "reward"} - {source})
    assert not bool(state.healthy)
    assert bits((state.learner, state.collector)) == bits((good.learner, good.collector))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.learner.policy))


def test_huge_learning_rate_is_reported_as_loss_gradient_or_parameters():
    state, metrics = trained(2, rate=1e38)
    assert set() < flags(metrics, 0) | flags(metrics, 1) <= {"loss", "gradient", "parameters"}
    assert not bool(state.healthy)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.learner.policy))


def test_an_infinite_gradient_norm_of_a_finite_loss_is_reported():
    # Clipping by an infinite norm sets the gradient to zero: training would silently learn nothing.
    state, metrics = trained(2, vf_coef=1e30)
    assert np.isfinite(metrics["train/loss"][0])
    assert flags(metrics, 0) == {"gradient"}
    assert bits(state.learner.policy) == bits(trained(0, vf_coef=1e30)[0].learner.policy)
