"""Objectives and losses of the user's: what they change, and what is said of those that are none."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.collect import JaxTrainer
from proximo.collect.learning import check_policy
from proximo.errors import ConfigError

import custom_networks as own
import toys
from helpers import difference, small_collector, small_config


def clipped(policy, minibatch):
    """PPO's own objective, as a user would write it."""
    ratio, a, eps = minibatch.ratio, minibatch.advantage, minibatch.clip_eps
    return -minibatch.mean(jnp.minimum(ratio * a, jnp.clip(ratio, 1 - eps, 1 + eps) * a)), {}


class Reconstructing(own.Encoder):
    """An encoder that can say what it has read."""

    decoder: eqx.nn.Linear

    def __init__(self, key, space):
        super().__init__(key, space)
        self.decoder = eqx.nn.Linear(own.UNITS, space.size, key=key)


def reconstruction(policy, minibatch):
    encoder = policy.torsos[0].encoder
    seen = policy.normalize(minibatch.observation)
    decoded = jax.vmap(jax.vmap(policy.custom_part("encoder").decoder))(encoder(seen))
    error = minibatch.mean(jnp.mean(jnp.square(decoded - jax.lax.stop_gradient(seen)), axis=-1))
    return error, {"reconstruction": error}


@functools.cache
def learned(updates=2, **settings):
    """The policy after some updates, their metrics, and the policy before."""
    collector = small_collector(toys.RandomEnds(), **settings)
    start = jax.jit(collector.init)(jax.random.key(0))
    state, metrics = jax.jit(lambda s: JaxTrainer(collector).advance(s, jnp.int32(updates), updates))(start)
    return state.learner.policy, metrics, start.learner.policy


@pytest.mark.parametrize(("name", "custom"), [("clip", clipped), ("spo", own.simple_policy_optimization)])
def test_custom_objective_equals_the_built_in_one(name, custom):
    ours, metrics, _ = learned(objective=name, learning_rate="1e-2")
    theirs, same, _ = learned(objective=custom, learning_rate="1e-2")
    assert difference(ours, theirs) < 2e-4  # eight steps of Adam enlarge another rounding
    assert difference(metrics, {metric: same[metric] for metric in metrics}) < 2e-4


def test_another_objective_changes_the_second_gradient_step():
    """At ratio 1 the penalty of SPO and its gradient are 0, as those of the clip are."""
    once = {"updates": 1, "num_epochs": 1, "num_minibatches": 1}
    assert difference(learned(**once)[0], learned(**once, objective=own.simple_policy_optimization)[0]) < 1e-6
    ours, *_ = learned(learning_rate="1e-2")
    theirs, metrics, _ = learned(learning_rate="1e-2", objective=own.simple_policy_optimization)
    assert difference(ours, theirs) > 1e-2
    assert (metrics["train/penalty"] > 0).all()


def test_an_extra_loss_is_added_and_reported():
    _, plain, _ = learned()
    _, metrics, _ = learned(extra_loss=own.no_loss)
    assert (metrics["train/extra_loss"] == 0).all()
    assert difference(plain, {name: metrics[name] for name in plain}) < 1e-6
    settings = {"encoder": Reconstructing, "hidden_sizes": (64, 64), "updates": 4, "learning_rate": "1e-2"}
    policy, metrics, start = learned(**settings, extra_loss=reconstruction)
    total = metrics["train/policy_loss"] + 0.5 * metrics["train/value_loss"] + metrics["train/extra_loss"]
    np.testing.assert_allclose(metrics["train/loss"], total, rtol=1e-5)
    assert metrics["train/reconstruction"][-1] < 0.7 * metrics["train/reconstruction"][0]
    assert difference(*(p.custom_part("encoder").decoder.weight for p in (policy, start))) > 1e-3


class NoFunction:
    def __call__(self, policy, minibatch):
        return jnp.zeros(()), {}


def penalised(policy, minibatch):
    return jnp.zeros(()), {"penalty": jnp.zeros(())}


def named_like_the_rate(policy, minibatch):
    return jnp.zeros(()), {"learning_rate": jnp.zeros(())}


class Unhashable(eqx.Module):
    weight: jax.Array

    def __call__(self, policy, minibatch):
        return jnp.zeros(()), {}


def raising(policy, minibatch):
    return minibatch.mean(minibatch.advantage @ jnp.zeros((7, 7))), {}


def returning(metric):
    return lambda policy, minibatch: (jnp.zeros(()), {"metric": metric(minibatch)})


TWO = {"extra_loss": penalised, "objective": own.simple_policy_optimization}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"extra_loss": own.of_each_row}, r"^extra_loss: the function returns \(f32\[1,2\], \{\}\), expected \(loss, metrics\)"),
        ({"extra_loss": lambda p, m: m.mean(m.advantage)}, r"^extra_loss: the function returns f32\[\], expected"),
        ({"extra_loss": returning(lambda m: m.advantage)}, r"returns \(f32\[\], \{'metric': f32\[1,2\]\}\), expected"),
        ({"extra_loss": returning(lambda m: "text")}, r"returns \(f32\[\], \{'metric': 'text'\}\), expected"),
        ({"extra_loss": own.named_like_ours}, r"^A custom loss returns the metric 'entropy', which exists already"),
        ({"objective": named_like_the_rate}, r"^A custom loss returns the metric 'learning_rate', which exists already"),
        (TWO, r"^A custom loss returns the metric 'penalty', which exists already"),
        ({"objective": raising}, r"^The custom code of objective raised TypeError: .*\(test_custom_losses.py, line"),
        ({"objective": NoFunction}, r"^objective = test_custom_losses:NoFunction: expected a function \(policy, minibatch\)"),
        ({"objective": Unhashable(jnp.ones(3))}, r"^objective = <.*Unhashable>: expected .* that can be hashed"),
        ({"objective": "custom_networks:no_los"}, r"has no such name \(did you mean 'no_loss'\?\)"),
        ({"objective": "optax:huber_loss"}, r"^objective = 'optax:huber_loss' is function: expected a class"),
    ],
)
def test_invalid_loss_raises_before_training(settings, message):
    with pytest.raises(ConfigError, match=message):
        check_policy(toys.RandomEnds(), small_config(**settings))
