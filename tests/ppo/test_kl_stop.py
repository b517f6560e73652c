"""Once the approximate KL has passed ``target_kl``, nothing changes for the rest of the update."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo import ppo

from helpers import difference, small_collector


@functools.cache
def updated():
    """One update under each of three targets, vmapped, and the same three times four epochs without a stop."""
    collector = small_collector(num_minibatches=1, num_epochs=4, target_kl=0.1, learning_rate=1e-2)
    once = small_collector(num_minibatches=1, num_epochs=1, learning_rate=1e-2)
    state = collector.init(jax.random.key(0))
    _, rollout, _ = jax.jit(collector.collect)(state.learner.policy, state.collector)

    def under(target_kl):
        h = dataclasses.replace(state.learner.hyperparameters, target_kl=target_kl)
        return ppo.update(dataclasses.replace(state.learner, hyperparameters=h), rollout)

    first_step = jax.jit(ppo.update)(once.init(jax.random.key(0)).learner, rollout)
    return state.learner, jax.jit(jax.vmap(under))(jnp.array([1e-6, 1e6])), first_step


def row(tree, n):
    return jax.tree.map(lambda x: x[n], tree)


def count(learner):
    (steps,) = [leaf for leaf in jax.tree.leaves(learner.optimizer) if jnp.issubdtype(leaf.dtype, jnp.integer)]
    return steps.tolist()


def test_tiny_target_kl_stops_after_one_step_huge_never():
    _, (learner, metrics), _ = updated()
    assert metrics["gradient_steps"].tolist() == [1.0, 4.0]
    assert count(learner) == [1, 4]


def test_after_the_stop_neither_parameters_nor_moments_change():
    _, (learner, _), (first_step, _) = updated()
    stopped, ran_on = row(learner, 0), row(learner, 1)
    assert difference(stopped.policy, first_step.policy) < 1e-6
    assert difference(stopped.optimizer, first_step.optimizer) < 1e-6
    assert difference(ran_on.policy.actor, first_step.policy.actor) > 1e-3


def test_normalizer_and_steps_advance_after_the_stop():
    _, (learner, _), _ = updated()
    assert jnp.array_equal(learner.policy.normalizer.mean[0], learner.policy.normalizer.mean[1])
    assert learner.steps[:, 0].tolist() == [32, 32]


def test_metrics_average_taken_steps_and_the_stopping_one():
    _, (_, metrics), (_, episode_start) = updated()
    # The second step has been measured (its KL is what stopped), the third has not.
    assert metrics["approx_kl"][0] > 1e-6
    assert np.isfinite(metrics["approx_kl"]).all()
    assert float(episode_start["approx_kl"]) == pytest.approx(0.0, abs=1e-6)
    assert metrics["ratio_max"][1] > metrics["ratio_max"][0] > 1.0
