"""The two measures of a memory: is it up to date, and is it used."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.collect import JaxTrainer
from proximo.ppo.memory_diagnostics import diagnose

from helpers import CAPACITY, drawn_policy, small_collector


@pytest.fixture(scope="module")
def collected():
    collector = small_collector(memory="gru", sequence_length=4)
    policy, collect = drawn_policy(collector.env, collector.config), jax.jit(collector.collect)
    state = jax.jit(lambda key: collector.init(key).collector)(jax.random.key(0))
    collected, _, _ = collect(policy, state)
    _, rollout, _ = collect(policy, collected)
    return policy, rollout


def added(policy, x):
    """A policy whose numbers are larger by ``x``."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf) + np.asarray(x, leaf.dtype)), policy)


def measure(policy, rollout):
    return {name: float(x) for name, x in jax.jit(diagnose, static_argnums=2)(policy, rollout, 4).items()}


def test_the_memory_of_the_policy_that_acted_is_not_stale(collected):
    assert measure(*collected)["staleness"] < 1e-5


def test_staleness_grows_with_the_distance_of_the_policy_that_learned(collected):
    policy, rollout = collected
    moved = [added(policy, s) for s in (0.01, 0.1)]
    near, far = (measure(p, rollout)["staleness"] for p in moved)
    assert 1e-4 < near < far < 1


def test_single_sequence_staleness_is_seen_in_last_memory(collected):
    policy, rollout = collected
    whole = dataclasses.replace(rollout, memory=jax.tree.map(lambda m: m[:1], rollout.memory))
    assert float(jax.jit(diagnose, static_argnums=2)(added(policy, 0.1), whole, 8)["staleness"]) > 1e-2


def test_used_memory_changes_the_actions(collected):
    assert measure(*collected)["use"] > 1e-3


def test_memory_use_is_zero_if_every_step_starts_an_episode(collected):
    policy, rollout = collected
    assert measure(policy, dataclasses.replace(rollout, episode_start=jnp.ones_like(rollout.episode_start)))["use"] < 1e-9


def test_memory_use_counts_valid_steps_only(collected):
    policy, rollout = collected
    some = rollout.valid.at[:, 1:].set(False)
    assert measure(policy, dataclasses.replace(rollout, valid=some))["use"] != pytest.approx(measure(policy, rollout)["use"])


def test_carried_over_memory_is_compared_with_an_empty_one(collected):
    policy, rollout = collected
    assert measure(dataclasses.replace(policy, reset_memory=False), rollout)["use"] > 1e-3


@pytest.mark.parametrize("seeds", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_training_measures_memory_at_the_diagnose_interval(seeds):
    collector = small_collector(memory="gru", sequence_length=4, diagnose_every=3, seeds_axis=bool(seeds))
    keys = jax.random.split(jax.random.key(0), max(1, seeds))

    def run(key):
        return JaxTrainer(collector).advance(collector.init(key), jnp.int32(CAPACITY), CAPACITY)[1]

    metrics = jax.jit(jax.vmap(run, axis_name="seeds") if seeds else lambda k: run(k[0]))(keys)
    for name in ("memory/staleness", "memory/use"):
        looked = np.isfinite(np.atleast_2d(metrics[name]))
        assert (looked == [False, False, True, False]).all()


def test_without_memory_or_when_switched_off_nothing_is_measured():
    for settings in ({"memory": "none"}, {"memory": "gru", "diagnose_every": -1}):
        assert small_collector(**settings).config.diagnose_every == 0


def test_staleness_compares_memories_after_burn_in():
    collector = small_collector(memory="gru", sequence_length=4, burn_in=2)
    policy, collect = drawn_policy(collector.env, collector.config), jax.jit(collector.collect)
    state = jax.jit(lambda key: collector.init(key).collector)(jax.random.key(0))
    collected, _, _ = collect(policy, state)
    _, rollout, _ = collect(policy, collected)
    moved = added(policy, 0.1)
    never = dataclasses.replace(rollout, episode_start=jnp.zeros_like(rollout.episode_start))
    never = dataclasses.replace(
        never,
        burn_in_steps=dataclasses.replace(
            rollout.burn_in_steps, episode_start=jnp.zeros_like(rollout.burn_in_steps.episode_start)
        ),
    )
    assert measure(moved, never)["staleness"] > 1e-3
    # Where the burnt-in rows begin episodes, nothing of the stored memories is left.
    always = dataclasses.replace(rollout, episode_start=jnp.ones_like(rollout.episode_start))
    always = dataclasses.replace(
        always,
        burn_in_steps=dataclasses.replace(
            rollout.burn_in_steps, episode_start=jnp.ones_like(rollout.burn_in_steps.episode_start)
        ),
    )
    assert measure(moved, always)["staleness"] < 1e-5
