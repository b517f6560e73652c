"""Sequences and minibatches of a rollout; and no gradient crosses the boundary of a sequence, or a reset."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.networks.recurrent import CELLS
from proximo.ppo import minibatches
from proximo.ppo.minibatches import Sequences, join_sequences, make_batch, split_sequences, stack_memory, unroll
from proximo.ppo.optimizer import split_policy
from proximo.spaces import Box
from proximo.types import BurnIn

from helpers import collected, difference, small_policy, trainer

STEPS, ENVS = 8, 2


def rows():
    """Each entry says its time and its environment: 10 · t + n."""
    return 10 * jnp.arange(STEPS)[:, None] + jnp.arange(ENVS)


def is_contiguous(pieces):
    return bool(jnp.all(jnp.diff(pieces, axis=0) == 10))


@pytest.mark.parametrize("length", [1, 2, 4, 8])
def test_sequences_are_contiguous_in_time_and_of_one_environment(length):
    pieces = split_sequences(rows(), length)
    assert pieces.shape == (length, STEPS * ENVS // length)
    assert length != 2 or pieces.tolist() == [[0, 1, 20, 21, 40, 41, 60, 61], [10, 11, 30, 31, 50, 51, 70, 71]]
    assert is_contiguous(pieces)
    assert not is_contiguous(rows().reshape(length, -1)) or length in (1, 8)
    assert sorted(pieces.reshape(-1).tolist()) == sorted(rows().reshape(-1).tolist())
    assert stack_memory((rows()[::length],))[0].tolist() == pieces[0].tolist()
    x = jnp.asarray(np.random.default_rng(0).normal(size=(STEPS, ENVS, 4)), jnp.float32)
    assert jnp.array_equal(join_sequences(split_sequences(x, length), ENVS), x)


def test_minibatches_contain_every_sequence_exactly_once():
    index = minibatches.minibatch_indices(jax.random.key(0), 24, 4)
    assert index.shape == (4, 6)
    assert sorted(index.reshape(-1).tolist()) == list(range(24))
    assert not jnp.array_equal(index, minibatches.minibatch_indices(jax.random.key(1), 24, 4))


def test_a_policy_may_have_several_value_heads():
    learner, expected = collected("gru")
    policy, collector = learner.policy, trainer("gru").collector
    policy = dataclasses.replace(policy, critic={"one": policy.critic, "other": policy.critic})
    _, rollout, _ = jax.jit(collector.collect)(policy, trainer("gru").init(0).collector)
    batch = make_batch(rollout, jnp.zeros_like(rollout.reward), rollout.value, 4)
    for name in ("value", "bootstrap_value", "last_value"):
        values = getattr(rollout, name)
        assert set(values) == {"one", "other"}
        assert all(jnp.array_equal(value, getattr(expected, name)) for value in values.values()), name
    assert jnp.array_equal(batch.value["other"], split_sequences(expected.value, 4))


def influence(memory, episode_start, length):
    """How much the value of row ``t`` depends on the observation of row ``s``: (t, s), for the first environment."""
    policy = small_policy(Box((3,)), memory=memory)
    rng = np.random.default_rng(0)
    observation = jnp.asarray(rng.normal(size=(STEPS, ENVS, 3)), jnp.float32)
    pieces = STEPS // length
    memories = jax.tree.map(lambda m: jnp.asarray(rng.normal(size=(pieces, *m.shape)), jnp.float32), policy.init_memory(ENVS))

    def values(observation):
        rows = [split_sequences(x, length) for x in (observation, episode_start, jnp.ones_like(episode_start))]
        _, _, value = policy.unroll(stack_memory(memories), *rows)
        return join_sequences(value, ENVS)[:, 0]

    return np.abs(jax.jit(jax.jacrev(values))(observation)[:, :, 0]).max(-1)


def flags(*resets):
    return jnp.zeros((STEPS, ENVS), bool).at[jnp.array(resets, int), 0].set(True)


@pytest.mark.parametrize("memory", [cell for cell in CELLS if cell != "gtrxl"])
def test_no_gradient_crosses_the_boundary_of_a_sequence(memory):
    matrix = influence(memory, flags(), 4)
    assert np.all(matrix[4:, :4] == 0.0)
    assert np.all(matrix[np.tril_indices(4)] > 0.0)
    assert np.all(matrix[4:, 4:][np.tril_indices(4)] > 0.0)


@pytest.mark.parametrize("memory", CELLS)
def test_no_gradient_crosses_a_reset(memory):
    matrix = influence(memory, flags(3), 8)
    assert np.all(matrix[3:, :3] == 0.0)
    assert np.all(matrix[3:, 3:][np.tril_indices(5)] > 0.0)


def test_gradient_crosses_without_a_boundary_and_never_from_later_steps():
    assert np.all(influence("gru", flags(), 8)[4:, :4] > 0.0)
    assert influence("gru", flags(4), 8)[3, 2] > 0.0
    assert np.all(influence("gru", flags(3), 8)[np.triu_indices(STEPS, 1)] == 0.0)


def test_burn_in_updates_memory_without_gradient():
    policy = small_policy(Box((3,)), memory="gru")
    rng = np.random.default_rng(1)
    rows = [jnp.asarray(rng.normal(size=(n, ENVS, 3)), jnp.float32) for n in (2, 4)]
    no, yes = ((jnp.zeros((n, ENVS), bool), jnp.ones((n, ENVS), bool)) for n in (2, 4))

    def values(policy, early):
        sequences = Sequences(policy.init_memory(ENVS), BurnIn(early, *no), rows[1], *yes)
        return unroll(policy, sequences)[2]

    trainable, rest = split_policy(policy)

    @jax.jit
    def measure(trainable, early):
        policy = eqx.combine(trainable, rest)
        moved = difference(values(policy, early), values(policy, early + 1.0))
        # Nor any gradient of the parameters by way of the memory: that is the gradient from a memory that is given.
        given = policy.unroll(policy.init_memory(ENVS), early, *no)[0]
        direct = jax.grad(lambda p: jnp.sum(eqx.combine(p, rest).unroll(given, rows[1], *yes)[2]))(trainable)
        burnt_in = jax.grad(lambda p: jnp.sum(values(eqx.combine(p, rest), early)))(trainable)
        return moved, jax.jacrev(lambda early: values(policy, early))(early), difference(burnt_in, direct)

    moved, gradient, error = measure(trainable, rows[0])
    assert moved > 1e-3
    assert not np.any(gradient)
    assert error < 1e-5
