"""Several seeds or several hyperparameters in one compiled program; a second call compiles nothing."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from proximo.collect import JaxTrainer, make_train
from proximo.collect.learning import fresh_policy
from proximo.ppo import make_hyperparameters

import toys
from helpers import bits, compilations, difference, small_collector, small_config, trainer


def with_rate(state, rate):
    h = make_hyperparameters(small_config(learning_rate=rate).ppo)
    hyperparameters = dataclasses.replace(state.learner.hyperparameters, learning_rate=h.learning_rate)
    return dataclasses.replace(state, learner=dataclasses.replace(state.learner, hyperparameters=hyperparameters))


def test_another_seed_length_or_learning_rate_compiles_nothing():
    t = trainer("none")
    states = [t.init(0), t.init(1), with_rate(t.init(2), "linear(1e-2, 1e-5)")]
    jax.block_until_ready(t.advance(states[0], 1))
    with compilations() as compiled:
        jax.block_until_ready([t.advance(state, n) for state, n in zip(states, (1, 2, 3), strict=True)])
    assert compiled == []
    with compilations() as compiled:  # which are counted
        jax.block_until_ready(jax.jit(lambda x: x * 17.25 + 3.5)(jnp.ones(23)))
    assert len(compiled) > 0


def test_seeds_trained_together_equal_seeds_trained_alone():
    collector = small_collector(seeds_axis=True, sequence_length=4, normalize_reward=True)
    keys = jax.random.split(jax.random.key(3), 2)
    together = jax.jit(collector.init_seeds)(keys)
    program = jax.jit(jax.vmap(lambda state: JaxTrainer(collector).advance(state, jnp.int32(2), 2), axis_name="seeds"))
    together, metrics = program(together)
    t = trainer("none")
    for n in range(2):
        alone, alone_metrics = t.advance(t.collector.init(keys[n]), 2)
        this = jax.tree.map(lambda x, n=n: x[n], together)
        assert difference(this.learner.policy, alone.learner.policy) < 1e-4
        assert difference(this.collector.observation, alone.collector.observation) < 1e-4
        assert difference(metrics["train/loss"][n], alone_metrics["train/loss"][:2]) < 1e-3
    one, other = (jax.tree.map(lambda x, n=n: x[n], together.learner.policy) for n in range(2))
    assert bits(one) != bits(other)


def test_a_whole_training_can_be_vmapped_over_learning_rates():
    config = small_config(total_steps=96)
    train = make_train(config, toys.RandomEnds())
    each = [make_hyperparameters(small_config(learning_rate=r, total_steps=96).ppo) for r in ("0", "1e-3", "1e-2")]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    key = jax.random.key(0)
    states, metrics = jax.jit(jax.vmap(train, in_axes=(None, 0)))(key, stacked)
    assert metrics["train/learning_rate"][:, 0].tolist() == pytest.approx([0.0, 1e-3, 1e-2])
    assert metrics["train/loss"].shape == (3, 3)
    start = fresh_policy(jax.random.split(key, 3)[0], toys.RandomEnds(), config)
    moved = [float(difference(jax.tree.map(lambda x, n=n: x[n], states.learner.policy.actor), start.actor)) for n in range(3)]
    assert moved[0] == 0.0
    assert 0.0 < moved[1] < moved[2]
