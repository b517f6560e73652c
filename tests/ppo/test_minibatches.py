import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.ppo.minibatches import join_sequences, minibatch_indices, split_sequences, stack_memory

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
    assert is_contiguous(pieces)
    assert sorted(pieces.reshape(-1).tolist()) == sorted(rows().reshape(-1).tolist())


def test_contiguity_detects_the_strided_reshape():
    assert not is_contiguous(rows().reshape(3, -1))


def test_split_sequences_by_hand():
    assert split_sequences(rows(), 3).tolist() == [[0, 1, 30, 31], [10, 11, 40, 41], [20, 21, 50, 51]]


def test_memories_have_the_order_of_the_sequences():
    before_pieces = rows()[::3]
    assert stack_memory((before_pieces,))[0].tolist() == split_sequences(rows(), 3)[0].tolist()


@pytest.mark.parametrize("length", [1, 3])
def test_join_sequences_inverts_split_sequences(length):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(STEPS, ENVS, 4)), jnp.float32)
    assert jnp.array_equal(join_sequences(split_sequences(x, length), ENVS), x)


def test_minibatches_contain_every_sequence_exactly_once():
    index = minibatch_indices(jax.random.key(0), 24, 4)
    assert index.shape == (4, 6)
    assert sorted(index.reshape(-1).tolist()) == list(range(24))
    assert not jnp.array_equal(index, minibatch_indices(jax.random.key(1), 24, 4))
