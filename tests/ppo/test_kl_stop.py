"""Once the approximate KL has passed ``target_kl``, nothing changes for the rest of the update."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo import ppo

from helpers import difference, small_collector


def updated():
    """One update under each of two targets, vmapped, which the settings have switched off, and one of a single gradient step."""
    collector = small_collector(num_minibatches=1, num_epochs=4, learning_rate=1e-2)
    once = small_collector(num_minibatches=1, num_epochs=1, learning_rate=1e-2)
    state = collector.init(jax.random.key(0))
    _, rollout, _ = jax.jit(collector.collect)(state.learner.policy, state.collector)

    def under(target_kl):
        h = dataclasses.replace(state.learner.hyperparameters, target_kl=target_kl)
        return ppo.update(dataclasses.replace(state.learner, hyperparameters=h), rollout)

    first_step = jax.jit(ppo.update)(once.init(jax.random.key(0)).learner, rollout)
    return jax.jit(jax.vmap(under))(jnp.array([1e-6, 1e6])), first_step


def test_tiny_target_kl_stops_parameters_and_moments_after_one_step_huge_never():
    (learner, metrics), (once, of_one_step) = updated()
    assert metrics["gradient_steps"].tolist() == [1.0, 4.0]
    (steps,) = [leaf for leaf in jax.tree.leaves(learner.optimizer) if jnp.issubdtype(leaf.dtype, jnp.integer)]
    assert steps.tolist() == [1, 4]
    stopped, ran_on = (jax.tree.map(lambda x, n=n: x[n], learner) for n in (0, 1))
    assert difference((stopped.policy, stopped.optimizer), (once.policy, once.optimizer)) < 1e-6
    assert difference(ran_on.policy.actor, once.policy.actor) > 1e-3
    # The normalizer and the steps advance.
    assert jnp.array_equal(learner.policy.normalizer.mean[0], learner.policy.normalizer.mean[1])
    assert learner.steps[:, 0].tolist() == [32, 32]
    # Metrics average the taken steps and the stopping one: its KL is what stopped.
    assert metrics["approx_kl"][0] > 1e-6
    assert np.isfinite(metrics["approx_kl"]).all()
    assert float(of_one_step["approx_kl"]) == pytest.approx(0.0, abs=1e-6)
    assert metrics["ratio_max"][1] > metrics["ratio_max"][0] > 1.0
