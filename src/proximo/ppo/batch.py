"""From a rollout to the sequences that minibatches are made of."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped, UInt32

from proximo.distributions import Distribution
from proximo.math.shuffling import permutation
from proximo.networks import ActorCritic
from proximo.types import Memory, Observation, Rollout, Warmup


class Batch(eqx.Module):
    """``S`` sequences of ``L`` rows; the memory has one state for each sequence."""

    observation: Observation
    first: Bool[Array, "L S"]
    action: Shaped[Array, "L S ..."]
    log_prob: Float[Array, "L S"]
    value: Float[Array, "L S"]
    advantage: Float[Array, "L S"]
    target: Float[Array, "L S"]
    valid: Bool[Array, "L S"]
    memory: Memory
    warmup: Warmup | None = None
    """B S ...: the rows before each sequence; ``memory`` is the one before them."""


def cut(x: Shaped[Array, "T N ..."], length: int) -> Shaped[Array, "L S ..."]:
    """Contiguous pieces of ``length`` rows: ``[T, N] -> [T/L, L, N] -> [L, T/L * N]``. A plain ``reshape(L, -1)`` would
    yield strided pieces, whose rows do not follow each other."""
    steps, envs, *rest = x.shape
    pieces = x.reshape((steps // length, length, envs, *rest))
    return jnp.swapaxes(pieces, 0, 1).reshape((length, steps // length * envs, *rest))


def join(x: Shaped[Array, "L S ..."], envs: int) -> Shaped[Array, "T N ..."]:
    """The inverse of ``cut``."""
    length, sequences, *rest = x.shape
    pieces = x.reshape((length, sequences // envs, envs, *rest))
    return jnp.swapaxes(pieces, 0, 1).reshape((length * sequences // envs, envs, *rest))


def stack_memory(memory: PyTree[Shaped[Array, "J N ..."]]) -> PyTree[Shaped[Array, "S ..."]]:
    """The memories before all pieces, in the order of ``cut``."""
    return jax.tree.map(lambda m: m.reshape((m.shape[0] * m.shape[1], *m.shape[2:])), memory)


class Sequences(eqx.Module):
    """What the policy reads of ``S`` sequences."""

    memory: Memory
    warmup: Warmup | None
    observation: Observation
    first: Bool[Array, "L S"]
    valid: Bool[Array, "L S"]


def sequences_of(rollout: Rollout, length: int) -> Sequences:
    """All sequences of ``rollout``, in the order of ``cut``."""
    rows = (rollout.observation, rollout.first, rollout.valid)
    warmup = rollout.warmup
    if warmup is not None:
        burn_in = warmup.first.shape[0]
        early = jax.tree.map(lambda x: cut(x, length)[:burn_in], with_warmup(rollout))
        warmup = Warmup(*early)
    return Sequences(stack_memory(rollout.memory), warmup, *(jax.tree.map(lambda x: cut(x, length), row) for row in rows))


def with_warmup(rollout: Rollout) -> tuple[Observation, Bool[Array, "T N"], Bool[Array, "T N"]]:
    """Observation, first, valid of as many rows as the rollout has, beginning with its burn-in."""
    rows = (rollout.observation, rollout.first, rollout.valid)
    if rollout.warmup is None:
        return rows
    before = (rollout.warmup.observation, rollout.warmup.first, rollout.warmup.valid)
    burn_in = rollout.warmup.first.shape[0]
    return jax.tree.map(lambda b, x: jnp.concatenate([b, x[: x.shape[0] - burn_in]]), before, rows)


def unroll(policy: ActorCritic, sequences: Sequences | Batch) -> tuple[Memory, Distribution, Float[Array, "L S"]]:
    """``policy.unroll`` over the sequences; what is burnt in carries no gradient."""
    memory = warm(policy, sequences.memory, sequences.warmup)
    return policy.unroll(memory, sequences.observation, sequences.first, sequences.valid)


def warm(policy: ActorCritic, memory: Memory, warmup: Warmup | None) -> Memory:
    """The memory behind the rows of ``warmup`` by the parameters of ``policy``, as a constant."""
    if warmup is None:
        return memory
    memory, _, _ = policy.unroll(memory, warmup.observation, warmup.first, warmup.valid)
    return jax.lax.stop_gradient(memory)


def make_batch(rollout: Rollout, advantage: Float[Array, "T N"], length: int) -> Batch:
    """All sequences of ``rollout``; targets are ``advantage + value``."""
    rows = {
        "observation": rollout.observation,
        "first": rollout.first,
        "action": rollout.action,
        "log_prob": rollout.log_prob,
        "value": rollout.value,
        "advantage": advantage,
        "target": advantage + rollout.value,
        "valid": rollout.valid,
    }
    sequences = sequences_of(rollout, length)
    return Batch(**jax.tree.map(lambda x: cut(x, length), rows), memory=sequences.memory, warmup=sequences.warmup)


def shuffled(key: Key[Array, ""], sequences: int, num_minibatches: int) -> UInt32[Array, "M B"]:
    """Sequence numbers in random order, a row for each minibatch."""
    return permutation(key, sequences).reshape(num_minibatches, -1)


def take(batch: Batch, index: UInt32[Array, " B"]) -> Batch:
    """The sequences of ``index``."""
    memory = jax.tree.map(lambda m: m[index], batch.memory)
    rows = eqx.tree_at(lambda b: b.memory, batch, None)
    return eqx.tree_at(lambda b: b.memory, jax.tree.map(lambda x: x[:, index], rows), memory, is_leaf=lambda x: x is None)
