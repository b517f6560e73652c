"""Once the approximate KL has passed ``target_kl``, nothing changes for the rest of the update."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo import ppo

from helpers import difference, small_driver


@functools.cache
def updated():
    """One update under each of three targets, vmapped, and the same three times four epochs without a stop."""
    driver = small_driver(num_minibatches=1, num_epochs=4, target_kl=0.1, learning_rate=1e-2)
    once = small_driver(num_minibatches=1, num_epochs=1, learning_rate=1e-2)
    state = driver.init(jax.random.key(0))
    _, rollout, _ = jax.jit(driver.collect)(state.learner.policy, state.collector)

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


def test_a_tiny_target_stops_after_the_first_step_and_a_huge_one_never():
    _, (learner, metrics), _ = updated()
    assert metrics["gradient_steps"].tolist() == [1.0, 4.0]
    assert count(learner) == [1, 4]


def test_after_the_stop_neither_parameters_nor_moments_change():
    _, (learner, _), (first_step, _) = updated()
    stopped, ran_on = row(learner, 0), row(learner, 1)
    assert difference(stopped.policy, first_step.policy) < 1e-6
    assert difference(stopped.optimizer, first_step.optimizer) < 1e-6
    assert difference(ran_on.policy.actor, first_step.policy.actor) > 1e-3


def test_after_the_stop_normaliser_and_steps_still_see_the_rollout():
    _, (learner, _), _ = updated()
    assert jnp.array_equal(learner.policy.normalizer.mean[0], learner.policy.normalizer.mean[1])
    assert learner.steps[:, 0].tolist() == [32, 32]


def test_metrics_are_means_over_the_steps_taken_and_the_one_that_stopped():
    _, (_, metrics), (_, first) = updated()
    # The second step has been measured (its KL is what stopped), the third has not.
    assert metrics["approx_kl"][0] > 1e-6
    assert np.isfinite(metrics["approx_kl"]).all()
    assert float(first["approx_kl"]) == pytest.approx(0.0, abs=1e-6)
    assert metrics["ratio_max"][1] > metrics["ratio_max"][0] > 1.0
