"""An update with NaN or infinity is found, with its source; padding is ignored."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from proximo import ppo
from proximo.collect.learning import learn
from proximo.ppo.non_finite import find_non_finite
from proximo.ppo.rollout_processing import update_normalizer

from helpers import collected, collected_parts, small_collector, spoiled

FINE = {"loss": jnp.array(0.0), "grad_norm": jnp.array(0.0)}


def test_source_is_reported_and_padding_is_ignored():
    learner, rollout = collected()
    assert not any(find_non_finite(spoiled(rollout), FINE, learner, learner).values())
    nan = jnp.nan
    cases = {
        "observation": (dataclasses.replace(rollout, observation=rollout.observation.at[2, 1, 0].set(nan)), {}, learner),
        "reward": (dataclasses.replace(rollout, reward=rollout.reward.at[3, 0].set(-jnp.inf)), {}, learner),
        "loss": (rollout, {"loss": jnp.array(nan)}, learner),
        "gradient": (rollout, {"grad_norm": jnp.array(jnp.inf)}, learner),
        "parameters": (rollout, {}, dataclasses.replace(learner, policy=jax.tree.map(lambda x: x * nan, learner.policy))),
    }
    for source, (rows, metrics, state) in cases.items():
        flags = find_non_finite(rows, FINE | metrics, learner, state)
        assert {name for name, bad in flags.items() if bad} == {source}


def test_every_part_of_an_observation_is_checked():
    learner, rollout = collected_parts()
    assert not any(find_non_finite(rollout, FINE, learner, learner).values())
    body = rollout.observation["body"]
    broken = {**rollout.observation, "body": (body[0].at[1, 0, 2].set(jnp.nan), *body[1:])}
    flags = find_non_finite(dataclasses.replace(rollout, observation=broken), FINE, learner, learner)
    assert {name for name, bad in flags.items() if bad} == {"observation"}
    padding = dataclasses.replace(rollout, observation=broken, valid=rollout.valid.at[1, 0].set(False))
    assert not any(find_non_finite(padding, FINE, learner, learner).values())


def test_overflowing_normalizer_statistics_are_reported():
    learner, rollout = collected()
    huge = rollout.observation.at[0, 0, 0].set(1e25)
    policy = jax.jit(update_normalizer)(learner.policy, dataclasses.replace(rollout, observation=huge))
    assert not jnp.all(jnp.isfinite(policy.normalizer.variance))
    assert any(find_non_finite(rollout, FINE, learner, dataclasses.replace(learner, policy=policy)).values())


def test_non_finite_bootstrap_value_is_reported_as_observation():
    learner, rollout = collected()
    bad = dataclasses.replace(rollout, bootstrap_value=rollout.bootstrap_value.at[2, 1].set(jnp.nan))
    after, metrics = jax.jit(ppo.update)(learner, bad)
    flags = find_non_finite(bad, metrics, learner, after)
    assert flags["observation"]
    assert not flags["reward"]


def test_overflowing_reward_statistics_are_reported_as_reward():
    learner, rollout = collected()
    huge = dataclasses.replace(rollout, reward=rollout.reward.at[3, 0].set(1e25))
    update = jax.jit(ppo.update)
    after, metrics = update(learner, huge)
    assert find_non_finite(huge, metrics, learner, after)["reward"]
    fine, metrics = update(learner, rollout)
    assert not any(find_non_finite(rollout, metrics, learner, fine).values())


def test_an_infinity_that_stays_is_a_constant_of_a_custom_network():
    learner, rollout = collected()

    def with_bias(*bias):
        changed = eqx.tree_at(lambda policy: policy.actor.readout.output.bias, learner.policy, jnp.array(bias))
        return dataclasses.replace(learner, policy=changed)

    def is_bad(before, after):
        return bool(find_non_finite(rollout, FINE, before, after)["parameters"])

    before = with_bias(-jnp.inf, 1.0)
    assert not is_bad(before, with_bias(-jnp.inf, 2.0))
    for bias in ((jnp.inf, 1.0), (-jnp.inf, jnp.inf), (-jnp.inf, jnp.nan)):
        assert is_bad(before, with_bias(*bias))
    assert is_bad(with_bias(jnp.nan, 1.0), with_bias(jnp.nan, 1.0))


@pytest.mark.parametrize(
    "optimizer", [{"optimizer": "adam"}, {"optimizer": "adamw", "optimizer_settings": {"weight_decay": 0.1}}], ids=str
)
def test_an_update_keeps_a_constant_infinity(optimizer):
    collector = small_collector(**optimizer)
    state = collector.init(jax.random.key(0))
    forbids = eqx.tree_at(lambda policy: policy.actor.readout.output.bias, state.learner.policy, jnp.array([-jnp.inf, 0.0]))
    _, rollout, _ = jax.jit(collector.collect)(forbids, state.collector)
    learned, healthy, _ = jax.jit(learn)(dataclasses.replace(state.learner, policy=forbids), jnp.array(True), rollout)
    assert healthy
    assert learned.policy.actor.readout.output.bias[0] == -jnp.inf
    assert not jnp.array_equal(learned.policy.critic.output.weight, forbids.critic.output.weight)
