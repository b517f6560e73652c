"""Property: in the first minibatch of the first epoch the probability ratio is 1 and the value is the stored one."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest

from proximo.ppo.minibatches import make_batch, minibatch_indices, split_sequences, take, unroll
from proximo.ppo.rollout_processing import refresh_memory, update_normalizer
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import toys
from helpers import MEMORIES, REMEMBERING, difference, drawn_policy, small_collector, trainer

WAYS = {**REMEMBERING, "state-dependent noise": {"memory": "gru", "sde_every": 3}}
EVERYTHING, OVER_EPISODES = "burning in and observing", "observing over episodes"
CELLS = [memory for memory in MEMORIES if memory not in ("none", "gtrxl with identity gates")]
# In float64, and of identity gates, test_step_equals_unroll.py has the same of each step.
CASES = [
    *((way,) for way in ("none", *CELLS, "burn-in of a whole sequence", EVERYTHING, OVER_EPISODES)),
    ("gru", 0),
    *((f"{way}, continuous actions",) for way in (EVERYTHING, "state-dependent noise")),
    (f"{EVERYTHING}, masked choices",),
    ("gru, masked bits",),
]
VECTORS = Dict((("x", Box((3,))), ("level", Discrete(4, 2))))
ENVS = {
    "": toys.RandomEnds(),
    "continuous actions": toys.ContinuousRandomEnds(),
    "masked choices": toys.AnySpaces(toys.masked(VECTORS, 6), MultiDiscrete((3, 1, 2))),
    "masked bits": toys.AnySpaces(toys.masked(VECTORS, 6), MultiBinary((3,))),
}


def recomputed(policy, minibatch):
    """Largest error of the log-probability and of the value of a minibatch."""
    _, distribution, value = unroll(policy, minibatch)
    return difference((distribution.log_prob(minibatch.action), value), (minibatch.log_prob, minibatch.value))


def after_the_step(policy, batch):
    """The memories one row late."""
    first = jax.tree.map(lambda x: x[0], (batch.observation, batch.episode_start, batch.valid))
    memory, *_ = policy.step(batch.memory, *first, jax.random.key(0))
    return dataclasses.replace(batch, memory=memory)


def refreshed(policy, rollout, length):
    """The memories before all sequences and behind the last row, recomputed."""
    renewed = refresh_memory(policy, rollout, length)
    return renewed.memory, renewed.last_memory


def strided(rollout, length):
    """The batch whose observations were cut by a plain reshape."""
    batch = make_batch(rollout, jnp.zeros_like(rollout.reward), rollout.value, length)
    wrong = jax.tree.map(lambda x: x.reshape((length, -1, *x.shape[2:])), rollout.observation)
    return dataclasses.replace(batch, observation=wrong)


def stacked(*trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def measure(collector, policy, state):
    def collect_and_observe(carry, _):
        policy, collected = carry
        collected, rollout, _ = collector.collect(policy, collected)
        return (update_normalizer(policy, rollout), collected), (policy, rollout)

    (later_policy, _), both = jax.lax.scan(collect_and_observe, (policy, state), length=2)
    policy, rollout = jax.tree.map(lambda x: x[1], both)
    length = collector.config.sequence_length
    batch = make_batch(rollout, jnp.zeros_like(rollout.reward), rollout.value, length)
    shifted = dataclasses.replace(batch, episode_start=split_sequences(jnp.roll(rollout.episode_start, 1, 0), length))
    order = minibatch_indices(jax.random.key(1), batch.episode_start.shape[1], collector.config.ppo.num_minibatches)
    variants = {
        "all minibatches": (policy, take(batch, order.reshape(-1))),
        "first shifted by one": (policy, shifted),
        "strided reshape": (policy, strided(rollout, length)),
        "memory after the step": (policy, after_the_step(policy, batch)),
        "normaliser updated too early": (later_policy, batch),
    }
    errors = jax.vmap(recomputed)(*stacked(*variants.values()))
    stored = rollout.memory, rollout.last_memory
    renewed = jax.vmap(lambda policy: difference(refreshed(policy, rollout, length), stored))(stacked(policy, later_policy))
    return {
        **dict(zip(variants, errors, strict=True)),
        "refreshed": renewed[0],
        "refreshed by another policy": renewed[1],
        "resets": jnp.sum(rollout.episode_start[1:]),
    }


@functools.cache
def measured(memory, length=4):
    kind, _, actions = memory.partition(", ")
    collector = small_collector(ENVS[actions], **WAYS[kind], sequence_length=length)
    start = drawn_policy(collector.env, collector.config), jax.jit(lambda key: collector.init(key).collector)(jax.random.key(0))
    return jax.device_get(jax.jit(functools.partial(measure, collector))(*start))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_first_minibatch_has_ratio_one_and_the_stored_values(case):
    errors = measured(*case)
    assert errors["resets"] > 3
    assert errors["all minibatches"] < 1e-5


@pytest.mark.parametrize("memory", [*CELLS, "burn-in of a whole sequence", EVERYTHING, OVER_EPISODES])
def test_acting_policy_refreshes_memory_to_the_stored_one(memory):
    assert measured(memory)["refreshed"] < 1e-5
    assert measured(memory)["refreshed by another policy"] > 1e-3


MUTATIONS = ("first shifted by one", "strided reshape", "memory after the step", "normaliser updated too early")


@pytest.mark.parametrize(
    ("way", "mutation"),
    [
        *((memory, mutation) for memory in CELLS for mutation in MUTATIONS),
        *((EVERYTHING, mutation) for mutation in MUTATIONS[1:]),
        ("none", "normaliser updated too early"),
        (f"{EVERYTHING}, masked choices", "strided reshape"),  # a mask of another step
    ],
)
def test_check_detects_mutations(way, mutation):
    assert measured(way)[mutation] > (1e3 if "masked" in way else 1e-3)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_every_minibatch_has_ratio_one_at_zero_learning_rate(memory):
    t = trainer(memory)
    state = t.init(0)
    rate = jax.tree.map(jnp.zeros_like, state.learner.hyperparameters.learning_rate)
    rate = dataclasses.replace(rate, fraction=jnp.ones(()))
    hyperparameters = dataclasses.replace(state.learner.hyperparameters, learning_rate=rate)
    state = dataclasses.replace(state, learner=dataclasses.replace(state.learner, hyperparameters=hyperparameters))
    _, still = t.advance(state, 4)
    for name in ("train/ratio_min", "train/ratio_max"):
        assert still[name].tolist() == pytest.approx([1.0] * 4, abs=1e-5)
    _, moving = t.advance(t.init(0), 4)
    assert jnp.all(moving["train/ratio_max"] > 1.0002)
