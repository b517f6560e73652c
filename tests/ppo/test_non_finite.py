"""An update with NaN or infinity is found, with its source; padding is ignored."""

import dataclasses

import jax
import jax.numpy as jnp

from proximo import ppo
from proximo.ppo.non_finite import find_non_finite
from proximo.ppo.rollout_processing import update_normalizer

from helpers import collected, collected_parts, spoiled

FINE = {"loss": jnp.array(0.0), "grad_norm": jnp.array(0.0)}


def test_source_is_reported_and_padding_is_ignored():
    learner, rollout = collected()
    assert not any(find_non_finite(spoiled(rollout), FINE, learner).values())
    nan = jnp.nan
    cases = {
        "observation": (dataclasses.replace(rollout, observation=rollout.observation.at[2, 1, 0].set(nan)), {}, learner),
        "reward": (dataclasses.replace(rollout, reward=rollout.reward.at[3, 0].set(-jnp.inf)), {}, learner),
        "loss": (rollout, {"loss": jnp.array(nan)}, learner),
        "gradient": (rollout, {"grad_norm": jnp.array(jnp.inf)}, learner),
        "parameters": (rollout, {}, dataclasses.replace(learner, policy=jax.tree.map(lambda x: x * nan, learner.policy))),
    }
    for source, (rows, metrics, state) in cases.items():
        flags = find_non_finite(rows, FINE | metrics, state)
        assert {name for name, bad in flags.items() if bad} == {source}


def test_every_part_of_an_observation_is_checked():
    learner, rollout = collected_parts()
    assert not any(find_non_finite(rollout, FINE, learner).values())
    body = rollout.observation["body"]
    broken = {**rollout.observation, "body": (body[0].at[1, 0, 2].set(jnp.nan), *body[1:])}
    flags = find_non_finite(dataclasses.replace(rollout, observation=broken), FINE, learner)
    assert {name for name, bad in flags.items() if bad} == {"observation"}
    padding = dataclasses.replace(rollout, observation=broken, valid=rollout.valid.at[1, 0].set(False))
    assert not any(find_non_finite(padding, FINE, learner).values())


def test_overflowing_normalizer_statistics_are_reported():
    learner, rollout = collected()
    huge = rollout.observation.at[0, 0, 0].set(1e25)
    policy = jax.jit(update_normalizer)(learner.policy, dataclasses.replace(rollout, observation=huge))
    assert not jnp.all(jnp.isfinite(policy.normalizer.variance))
    assert any(find_non_finite(rollout, FINE, dataclasses.replace(learner, policy=policy)).values())


def test_non_finite_bootstrap_value_is_reported_as_observation():
    learner, rollout = collected()
    bad = dataclasses.replace(rollout, bootstrap_value=rollout.bootstrap_value.at[2, 1].set(jnp.nan))
    after, metrics = jax.jit(ppo.update)(learner, bad)
    flags = find_non_finite(bad, metrics, after)
    assert flags["observation"]
    assert not flags["reward"]


def test_overflowing_reward_statistics_are_reported_as_reward():
    learner, rollout = collected()
    huge = dataclasses.replace(rollout, reward=rollout.reward.at[3, 0].set(1e25))
    update = jax.jit(ppo.update)
    after, metrics = update(learner, huge)
    assert find_non_finite(huge, metrics, after)["reward"]
    fine, metrics = update(learner, rollout)
    assert not any(find_non_finite(rollout, metrics, fine).values())
