"""Bit for bit: how a training is divided into calls changes nothing, and its seed decides all. Precision of products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.collect import JaxTrainer

from helpers import CAPACITY, bits, small_collector, trainer

KINDS = ["none", "gru"]


@pytest.mark.parametrize("memory", KINDS)
def test_updates_in_one_call_equal_as_many_calls(memory):
    t = trainer(memory)
    together, metrics = t.advance(t.init(0), 3)
    state, rows = t.init(0), []
    for _ in range(3):
        # Through the host and back, as a checkpoint goes.
        state = jax.tree.map(lambda x: x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jnp.asarray(np.asarray(x)), state)
        assert bits(together) != bits(state)
        state, row = t.advance(state, 1)
        rows.append(row)
    assert bits(together) == bits(state)
    for name, column in metrics.items():
        assert column[:3].tobytes() == np.stack([row[name][0] for row in rows]).tobytes()


def test_dropping_the_memory_changes_the_continued_training():
    t = trainer("gru")
    whole, _ = t.advance(t.init(1), 4)
    half, _ = t.advance(t.init(1), 2)
    half.collector.__dict__["memory"] = jax.tree.map(jnp.zeros_like, half.collector.memory)
    forgotten, _ = t.advance(half, 2)
    assert bits(whole) != bits(forgotten)


@pytest.mark.parametrize("memory", KINDS)
def test_one_seed_repeats_and_two_differ(memory):
    t = trainer(memory)
    one, again, other = (t.advance(t.init(seed), 2)[0] for seed in (5, 5, 6))
    assert bits(one) == bits(again)
    assert bits(one.learner.policy.actor) != bits(other.learner.policy.actor)
    assert bits(one.collector.observation) != bits(other.collector.observation)


def test_environments_differ_and_metrics_after_the_last_update_stay_zero():
    t = trainer("none")
    state = t.init(0)
    observation = np.asarray(state.collector.observation)
    assert len(np.unique(observation, axis=0)) == len(observation)
    after, metrics = t.advance(state, 3)
    assert after.learner.steps.tolist() == [96, 0]
    assert metrics["train/loss"].shape == (CAPACITY,)
    assert metrics["train/loss"][3] == 0.0
    assert jnp.all(metrics["train/loss"][:3] != 0.0)


@pytest.mark.parametrize("method", ["update", "inspect_before"])
def test_matmul_precision_reaches_every_matrix_product(method):
    def products(precision):
        collector = small_collector(matmul_precision=precision)
        lowered = jax.jit(getattr(JaxTrainer(collector), method)).lower(collector.init(jax.random.key(0)))
        return [line for line in lowered.as_text().splitlines() if "dot_general" in line]

    assert products("highest")
    assert all("HIGHEST" in line for line in products("highest"))
    assert not any("HIGHEST" in line for line in products("default"))
