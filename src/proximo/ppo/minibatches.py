"""From a rollout to the sequences that minibatches are made of."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped, UInt32

from proximo.distributions import Distribution
from proximo.math.shuffling import permutation
from proximo.networks import ActorCritic
from proximo.types import BurnIn, Memory, Observation, Rollout


class Sequences(eqx.Module):
    """What the policy reads of ``S`` sequences of ``L`` steps. Without a memory ``L`` is 1.

    Attributes:
        memory: S ...: the memory before each sequence, or before its burn-in.
        burn_in_steps: B S ...: the steps before each sequence that only update the memory; None without burn-in.
        observation: L S ...: as the environment returned it, before normalization.
        episode_start: L S: the memory is reset before this observation is read.
        valid: L S: False on padding, which enters no loss.
    """

    memory: Memory
    burn_in_steps: BurnIn | None
    observation: Observation
    episode_start: Bool[Array, "L S"]
    valid: Bool[Array, "L S"]


class Batch(Sequences):
    """Sequences with what the loss reads besides.

    Attributes:
        action: L S ...: as the distribution sampled it.
        log_prob: L S: logarithm of the action's probability under the policy that acted.
        value: L S: value by the policy that acted, in units of the scaled reward.
        advantage: L S.
        target: L S: what the value is fitted to: advantage plus value.
    """

    action: Shaped[Array, "L S ..."]
    log_prob: Float[Array, "L S"]
    value: Float[Array, "L S"]
    advantage: Float[Array, "L S"]
    target: Float[Array, "L S"]


def split_sequences(x: Shaped[Array, "T N ..."], length: int) -> Shaped[Array, "L S ..."]:
    """Cut time into contiguous sequences: ``[T, N] -> [T/L, L, N] -> [L, T/L * N]``.

    A plain ``reshape(L, -1)`` would return strided sequences, whose steps do not follow each other.

    Args:
        x: one entry for each transition.
        length: ``L``, a divisor of ``T``.
    """
    steps, envs, *rest = x.shape
    sequences = x.reshape((steps // length, length, envs, *rest))
    return jnp.swapaxes(sequences, 0, 1).reshape((length, steps // length * envs, *rest))


def join_sequences(x: Shaped[Array, "L S ..."], envs: int) -> Shaped[Array, "T N ..."]:
    """The inverse of ``split_sequences``, for ``N = envs``."""
    length, sequences, *rest = x.shape
    split = x.reshape((length, sequences // envs, envs, *rest))
    return jnp.swapaxes(split, 0, 1).reshape((length * sequences // envs, envs, *rest))


def stack_memory(memory: PyTree[Shaped[Array, "J N ..."]]) -> PyTree[Shaped[Array, "S ..."]]:
    """The memories before all sequences, in the order of ``split_sequences``."""
    return jax.tree.map(lambda m: m.reshape((m.shape[0] * m.shape[1], *m.shape[2:])), memory)


def sequences_of(rollout: Rollout, length: int) -> Sequences:
    """All sequences of ``rollout``, in the order of ``split_sequences``."""
    burn_in_steps = rollout.burn_in_steps
    if burn_in_steps is not None:
        burn_in = burn_in_steps.episode_start.shape[0]
        burn_in_steps = BurnIn(*jax.tree.map(lambda x: split_sequences(x, length)[:burn_in], with_burn_in(rollout)))
    memory = stack_memory(rollout.memory)
    return Sequences(memory, burn_in_steps, *jax.tree.map(lambda x: split_sequences(x, length), inputs(rollout)))


def inputs(steps: Rollout | BurnIn | Sequences) -> tuple[Observation, Bool[Array, "..."], Bool[Array, "..."]]:
    """What ``ActorCritic.unroll`` reads besides the memory: observation, ``episode_start`` and ``valid``."""
    return steps.observation, steps.episode_start, steps.valid


def with_burn_in(rollout: Rollout) -> tuple[Observation, Bool[Array, "T N"], Bool[Array, "T N"]]:
    """``inputs`` of ``T`` steps that begin with the burn-in of the first sequence."""
    if rollout.burn_in_steps is None:
        return inputs(rollout)
    before = inputs(rollout.burn_in_steps)
    return jax.tree.map(lambda b, x: jnp.concatenate([b, x[: x.shape[0] - b.shape[0]]]), before, inputs(rollout))


def unroll(policy: ActorCritic, sequences: Sequences) -> tuple[Memory, Distribution, Float[Array, "L S"]]:
    """``policy.unroll`` over the sequences, after their burn-in, which has no gradient.

    Args:
        policy: the policy.
        sequences: ``S`` sequences of ``L`` steps.

    Returns:
        The memory after each sequence (S ...), the distributions of actions and the values (L S).
    """
    memory = run_burn_in(policy, sequences.memory, sequences.burn_in_steps)
    return policy.unroll(memory, *inputs(sequences))


def run_burn_in(policy: ActorCritic, memory: Memory, burn_in_steps: BurnIn | None) -> Memory:
    """Update the memory by the burn-in steps.

    Args:
        policy: the policy whose parameters are used.
        memory: S ...: the memory before the burn-in steps.
        burn_in_steps: B S ...; None without burn-in.

    Returns:
        The memory after the burn-in steps, without a gradient.
    """
    if burn_in_steps is None:
        return memory
    memory, _, _ = policy.unroll(memory, *inputs(burn_in_steps))
    return jax.lax.stop_gradient(memory)


def make_batch(rollout: Rollout, advantage: Float[Array, "T N"], length: int) -> Batch:
    """All sequences of ``rollout``; targets are ``advantage + value``."""
    steps = {
        "action": rollout.action,
        "log_prob": rollout.log_prob,
        "value": rollout.value,
        "advantage": advantage,
        "target": advantage + rollout.value,
    }
    return Batch(**vars(sequences_of(rollout, length)), **jax.tree.map(lambda x: split_sequences(x, length), steps))


def shuffled(key: Key[Array, ""], sequences: int, num_minibatches: int) -> UInt32[Array, "M B"]:
    """The numbers ``0 … sequences - 1`` in random order, in ``M`` minibatches of equal size ``B``."""
    return permutation(key, sequences).reshape(num_minibatches, -1)


def take(batch: Batch, index: UInt32[Array, " B"]) -> Batch:
    """The sequences whose numbers are in ``index``."""
    memory = jax.tree.map(lambda m: m[index], batch.memory)
    steps = jax.tree.map(lambda x: x[:, index], dataclasses.replace(batch, memory=None))
    return dataclasses.replace(steps, memory=memory)
