import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.ppo.minibatches import join_sequences, make_batch, minibatch_indices, split_sequences, stack_memory

from helpers import collected, trainer

STEPS, ENVS = 6, 2


def rows():
    """Each entry says its time and its environment: 10 · t + n."""
    return 10 * jnp.arange(STEPS)[:, None] + jnp.arange(ENVS)


def is_contiguous(pieces):
    return bool(jnp.all(jnp.diff(pieces, axis=0) == 10))


@pytest.mark.parametrize("length", [1, 2, 3, 6])
def test_sequences_are_contiguous_in_time_and_of_one_environment(length):
    pieces = split_sequences(rows(), length)
    assert pieces.shape == (length, STEPS * ENVS // length)
    assert length != 3 or pieces.tolist() == [[0, 1, 30, 31], [10, 11, 40, 41], [20, 21, 50, 51]]
    assert is_contiguous(pieces)
    assert not is_contiguous(rows().reshape(length, -1)) or length in (1, 6)
    assert sorted(pieces.reshape(-1).tolist()) == sorted(rows().reshape(-1).tolist())
    assert stack_memory((rows()[::length],))[0].tolist() == pieces[0].tolist()
    x = jnp.asarray(np.random.default_rng(0).normal(size=(STEPS, ENVS, 4)), jnp.float32)
    assert jnp.array_equal(join_sequences(split_sequences(x, length), ENVS), x)


def test_minibatches_contain_every_sequence_exactly_once():
    index = minibatch_indices(jax.random.key(0), 24, 4)
    assert index.shape == (4, 6)
    assert sorted(index.reshape(-1).tolist()) == list(range(24))
    assert not jnp.array_equal(index, minibatch_indices(jax.random.key(1), 24, 4))


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
