"""Each probe environment is solved in seconds; an untrained policy, or one that lacks the part in question, misses it."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learning import probes
from proximo.collect import make_train
from proximo.ppo import make_hyperparameters

from helpers import small_config

pytestmark = pytest.mark.learning
DEFAULTS = {"num_envs": 16, "num_steps": 8, "num_epochs": 4, "gamma": 0.9, "normalize_observation": False}


def config_of(updates, **settings):
    return small_config(**{**DEFAULTS, **settings, "total_steps": updates * 128})


@functools.cache
def program(env, updates, **settings):
    return jax.jit(make_train(config_of(updates, **settings), env))


@functools.cache
def trained(env, updates=60, learning_rate=1e-2, **settings):
    """The policy after a training of 128 steps an update, and its metrics."""
    hyperparameters = make_hyperparameters(config_of(updates, learning_rate=learning_rate, **settings).ppo)
    state, metrics = program(env, updates, **settings)(jax.random.key(0), hyperparameters)
    assert bool(state.healthy)
    return state.learner.policy, jax.device_get(metrics)


def said(policy, observations):
    """Distribution and value at single observations."""
    rows = jnp.asarray(observations, jnp.float32).reshape(1, -1, 1)
    episode_start = jnp.ones(rows.shape[:2], bool)
    _, distribution, value = eqx.filter_jit(lambda p: p.unroll(p.init_memory(rows.shape[1]), rows, episode_start, episode_start))(
        policy
    )
    return distribution, np.asarray(value[0])


def probability_of_one(policy, observations):
    distribution, _ = said(policy, observations)
    return np.asarray(jax.nn.softmax(distribution.logits[0])[:, 1])


def last(metrics, name, updates=5):
    return float(metrics[name][-updates:].mean())


@pytest.mark.parametrize(
    ("env", "settings", "observations", "values", "within"),
    [
        (probes.VALUE, {}, [1.0, -1.0], [1.0, -1.0], 0.1),
        (probes.DISCOUNT, {"gamma": 0.5}, [0.0, 1.0], [0.5, 1.0], 0.08),
        (probes.ENDLESS, {"updates": 150}, [0.0], [10.0], 1.0),
        (probes.FAILING, {"updates": 150}, [0.0], [2.26], 0.4),  # the mean of 1, 1.9, 2.71, 3.439
    ],
)
def test_values_are_learned(env, settings, observations, values, within):
    policy, metrics = trained(env, **settings)
    assert said(policy, observations)[1] == pytest.approx(values, abs=within)
    assert env is not probes.VALUE or last(metrics, "train/explained_variance") > 0.95


def test_the_action_follows_the_observation():
    policy, metrics = trained(probes.ACTION)
    assert probability_of_one(policy, [1.0, -1.0]) == pytest.approx([1.0, 0.0], abs=0.05)
    assert last(metrics, "rollout/success_rate") > 0.95
    policy, metrics = trained(probes.ACTION, learning_rate=0)
    assert probability_of_one(policy, [1.0, -1.0]) == pytest.approx([0.5, 0.5], abs=0.1)
    assert abs(said(policy, [0.0])[1][0]) < 0.5
    assert last(metrics, "rollout/success_rate") < 0.7


@pytest.mark.parametrize("memory", ["none", "gru", pytest.param("lstm", marks=pytest.mark.slow)])
def test_one_bit_is_remembered_only_with_a_memory(memory):
    _, metrics = trained(probes.MEMORY, memory=memory, updates=100)
    rate = last(metrics, "rollout/success_rate", 20)
    assert rate == pytest.approx(0.5, abs=0.1) if memory == "none" else last(metrics, "rollout/success_rate") > 0.95


def test_a_continuous_target_is_hit():
    policy, metrics = trained(probes.TARGET, updates=100, log_std_init=-1.0)
    distribution, _ = said(policy, [1.0, -1.0])
    assert np.asarray(distribution.mode()[0, :, 0]) == pytest.approx([0.5, -0.5], abs=0.12)
    assert last(metrics, "rollout/return_mean") > -0.15
