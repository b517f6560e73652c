"""What an update learned from, how far it went, whether its memory is used, and whether it has NaN or infinity."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo import ppo
from proximo.collect import JaxTrainer
from proximo.collect.learning import learn
from proximo.math import loss_terms, masked_statistics
from proximo.ppo import diagnostics
from proximo.ppo.diagnostics import diagnose_memory, find_non_finite
from proximo.ppo.rollout_processing import update_normalizer

from helpers import REMEMBERING, collected, collected_parts, drawn_policy, small_collector, spoiled

RATIOS = jax.jit(diagnostics.ratios)


@pytest.fixture(scope="module")
def update():
    """A collector, the state before the update, its rollout, what it learned from, the state after the update, its metrics."""
    settings = REMEMBERING["burning in and observing"] | {"sequence_length": 4, "normalize_reward": True, "clip_reward": "sign"}
    collector = small_collector(**settings)
    state, collect, update = jax.jit(collector.init)(jax.random.key(0)), jax.jit(collector.collect), jax.jit(ppo.update)
    learner = dataclasses.replace(state.learner, policy=drawn_policy(collector.env, collector.config))
    after, rollout, _ = collect(learner.policy, state.collector)
    state = dataclasses.replace(state, learner=update(learner, rollout)[0], collector=after)
    _, rollout, _ = jax.jit(collector.collect_episodes)(state.learner.policy, state.collector)
    rows = jax.jit(JaxTrainer(collector).inspect)(state, state)
    learned, metrics = update(state.learner, rollout)
    _, expected, _ = collect(state.learner.policy, state.collector)
    np.testing.assert_array_equal(rollout.action, expected.action)
    return state, rollout, rows, learned, metrics


def test_returns_and_advantages_are_those_that_the_update_learns_from(update):
    _, rollout, rows, _, metrics = update
    explained = masked_statistics.explained_variance(rollout.value, rows["returns"], rollout.valid)
    assert float(explained) == pytest.approx(float(metrics["explained_variance"]), abs=1e-4)
    np.testing.assert_allclose(rows["returns"] - rollout.value, rows["advantages"], atol=1e-5)
    other = masked_statistics.explained_variance(rollout.value, rows["advantages"], rollout.valid)
    assert float(other) != pytest.approx(float(metrics["explained_variance"]), abs=1e-2)


def test_ratios_are_one_only_before_learning(update):
    state, rollout, _, learned, metrics = update
    policy = state.learner.policy
    moved = dataclasses.replace(policy, normalizer=jax.tree.map(lambda x: x + 1, policy.normalizer))
    for same in (policy, moved):  # the normalizer from before the update
        np.testing.assert_allclose(RATIOS(state.learner, same, rollout), 1.0, atol=1e-5)
    behind = RATIOS(state.learner, learned.policy, rollout)
    assert float(jnp.max(jnp.abs(behind - 1))) > 1e-3
    kl = float(masked_statistics.masked_mean(loss_terms.approximate_kl(jnp.log(behind)), rollout.valid))
    assert kl > 0.3 * float(metrics["approx_kl"]), "the last minibatch stands farther off than the mean of all"


def second_rollout(**settings):
    collector = small_collector(memory="gru", sequence_length=4, **settings)
    policy, collect = drawn_policy(collector.env, collector.config), jax.jit(collector.collect)
    state, _, _ = collect(policy, jax.jit(lambda key: collector.init(key).collector)(jax.random.key(0)))
    return policy, collect(policy, state)[1]


@pytest.fixture(scope="module")
def acted():
    return second_rollout()


def added(policy, x):
    """A policy whose numbers are larger by ``x``."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf) + np.asarray(x, leaf.dtype)), policy)


DIAGNOSE = jax.jit(diagnose_memory, static_argnums=2)


def measure(policy, rollout, length=4):
    return {name: float(x) for name, x in DIAGNOSE(policy, rollout, length).items()}


def test_staleness_grows_with_the_distance_of_the_policy_that_learned(acted):
    policy, rollout = acted
    same, near, far = (measure(added(policy, s), rollout)["staleness"] for s in (0.0, 0.01, 0.1))
    assert same < 1e-5
    assert 1e-4 < near < far < 1
    whole = dataclasses.replace(rollout, memory=jax.tree.map(lambda m: m[:1], rollout.memory))
    assert measure(added(policy, 0.1), whole, 8)["staleness"] > 1e-2  # of last_memory


def test_memory_use_is_the_change_of_the_actions_on_valid_steps(acted):
    policy, rollout = acted
    use = measure(policy, rollout)["use"]
    assert use > 1e-3
    assert measure(policy, dataclasses.replace(rollout, valid=rollout.valid.at[:, 1:].set(False)))["use"] != pytest.approx(use)
    assert measure(policy, dataclasses.replace(rollout, episode_start=jnp.ones_like(rollout.episode_start)))["use"] < 1e-9
    assert measure(dataclasses.replace(policy, reset_memory=False), rollout)["use"] > 1e-3


def test_staleness_compares_memories_after_burn_in():
    policy, rollout = second_rollout(burn_in=2)

    def staleness(fill):
        steps = dataclasses.replace(rollout.burn_in_steps, episode_start=fill(rollout.burn_in_steps.episode_start))
        given = dataclasses.replace(rollout, episode_start=fill(rollout.episode_start), burn_in_steps=steps)
        return measure(added(policy, 0.1), given)["staleness"]

    assert staleness(jnp.zeros_like) > 1e-3
    assert staleness(jnp.ones_like) < 1e-5  # where the burn-in begins episodes, nothing of the stored memories is left


def test_training_measures_memory_at_the_diagnose_interval():
    learner, rollout = collected("gru")
    learner = dataclasses.replace(learner, static=dataclasses.replace(learner.static, diagnose_every=3))
    program = jax.jit(lambda steps: learn(dataclasses.replace(learner, steps=steps), jnp.array(True), rollout)[2])
    rows = [program(jnp.array([update * rollout.reward.size, 0], jnp.uint32)) for update in range(4)]
    for name in ("memory/staleness", "memory/use"):
        assert [bool(np.isfinite(row[name])) for row in rows] == [False, False, True, False]
    for settings in ({"memory": "none"}, {"memory": "gru", "diagnose_every": -1}):
        assert small_collector(**settings).config.diagnose_every == 0


FINE = {"loss": jnp.array(0.0), "grad_norm": jnp.array(0.0)}


def sources(rollout, metrics, before, after):
    return {name for name, bad in find_non_finite(rollout, FINE | metrics, before, after).items() if bad}


def test_source_is_reported_and_padding_is_ignored():
    learner, rollout = collected()
    assert sources(spoiled(rollout), {}, learner, learner) == set()
    nan, huge = jnp.nan, rollout.observation.at[0, 0, 0].set(1e25)

    def changed(**fields):
        return dataclasses.replace(rollout, **fields)

    overflowing = jax.jit(update_normalizer)(learner.policy, changed(observation=huge))
    for source, rows, metrics, policy in (
        ("observation", changed(observation=rollout.observation.at[2, 1, 0].set(nan)), {}, learner.policy),
        ("observation", changed(bootstrap_value=rollout.bootstrap_value.at[2, 1].set(nan)), {}, learner.policy),
        ("reward", changed(reward=rollout.reward.at[3, 0].set(-jnp.inf)), {}, learner.policy),
        ("loss", rollout, {"loss": jnp.array(nan)}, learner.policy),
        ("gradient", rollout, {"grad_norm": jnp.array(jnp.inf)}, learner.policy),
        ("parameters", rollout, {}, jax.tree.map(lambda x: x * nan, learner.policy)),
        ("parameters", rollout, {}, overflowing),
    ):
        assert sources(rows, metrics, learner, dataclasses.replace(learner, policy=policy)) == {source}
    # Each part of an observation is checked.
    learner, rollout = collected_parts()
    assert sources(rollout, {}, learner, learner) == set()
    body = rollout.observation["body"]
    broken = {**rollout.observation, "body": (body[0].at[1, 0, 2].set(nan), *body[1:])}
    assert sources(changed(observation=broken), {}, learner, learner) == {"observation"}
    assert sources(changed(observation=broken, valid=rollout.valid.at[1, 0].set(False)), {}, learner, learner) == set()


def test_overflowing_reward_statistics_are_reported_as_reward():
    learner, rollout = collected()
    update = jax.jit(ppo.update)
    for reward, expected in ((1e25, {"reward"}), (1.0, set())):
        given = dataclasses.replace(rollout, reward=rollout.reward.at[3, 0].set(reward))
        after, metrics = update(learner, given)
        assert sources(given, metrics, learner, after) >= expected
        assert expected or not sources(given, metrics, learner, after)


def test_an_infinity_that_stays_is_a_constant_of_a_custom_network():
    learner, rollout = collected()

    def is_bad(before, after):
        policies = (eqx.tree_at(lambda p: p.actor.readout.output.bias, learner.policy, jnp.array(b)) for b in (before, after))
        return bool(sources(rollout, {}, *(dataclasses.replace(learner, policy=policy) for policy in policies)))

    inf, nan = jnp.inf, jnp.nan
    assert not is_bad((-inf, 1.0), (-inf, 2.0))
    assert all(is_bad((-inf, 1.0), bias) for bias in ((inf, 1.0), (-inf, inf), (-inf, nan)))
    assert is_bad((nan, 1.0), (nan, 1.0))


def test_an_update_keeps_a_constant_infinity():
    collector = small_collector(optimizer="adamw", optimizer_settings={"weight_decay": 0.1})
    state = collector.init(jax.random.key(0))
    forbids = eqx.tree_at(lambda policy: policy.actor.readout.output.bias, state.learner.policy, jnp.array([-jnp.inf, 0.0]))
    _, rollout, _ = jax.jit(collector.collect)(forbids, state.collector)
    learned, healthy, _ = jax.jit(learn)(dataclasses.replace(state.learner, policy=forbids), jnp.array(True), rollout)
    assert healthy
    assert learned.policy.actor.readout.output.bias[0] == -jnp.inf
    assert not jnp.array_equal(learned.policy.critic.output.weight, forbids.critic.output.weight)
