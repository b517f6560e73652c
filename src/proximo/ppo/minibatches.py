"""From a rollout to sequences, and to the minibatches of a gradient step."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, Shaped, UInt32

from proximo.config import PPOConfig
from proximo.distributions import Distribution
from proximo.math.loss_terms import probability_ratio
from proximo.math.masked_statistics import count, mean_with_count, normalized
from proximo.math.shuffling import permutation
from proximo.networks import ActorCritic
from proximo.networks.actor_critic import Evaluated
from proximo.ppo.hyperparameters import Hyperparameters
from proximo.types import BurnIn, Memory, Observation, Rollout, Scalar, Value


class Sequences(eqx.Module):
    """What the policy reads of ``S`` sequences of ``L`` steps. Without a memory ``L`` is 1."""

    memory: Memory
    """S ...: the memory before each sequence, or before its burn-in."""
    burn_in_steps: BurnIn | None
    """B S ...: the steps before each sequence that only update the memory; None without burn-in."""
    observation: Observation
    """L S ...: as the environment returned it, before normalization."""
    episode_start: Bool[Array, "L S"]
    valid: Bool[Array, "L S"]
    """False on padding, which enters no loss."""


S = TypeVar("S", bound=Sequences)


class Batch(Sequences):
    """Sequences with the other fields that the loss reads."""

    action: Shaped[Array, "L S ..."]
    """As the distribution sampled it."""
    log_prob: Float[Array, "L S"]
    value: Value
    """L S: computed by the policy that acted, like ``log_prob``; in units of the scaled reward."""
    advantage: Float[Array, "L S"]
    target: Value
    """L S: what the value is fitted to: advantage plus value."""


class Minibatch(Batch):
    """The ``S`` sequences of ``L`` steps of a gradient step, and what the current policy computes for them.

    Its base classes add ``observation``, ``episode_start``, ``action`` and ``valid`` (as in ``Rollout``),
    ``memory`` and ``burn_in_steps``, and ``advantage``, ``target``, ``log_prob`` and ``value`` (the last two
    by the policy that acted).

    Attributes:
        distribution: L S: distribution of actions, by the current parameters; with ``rpo_alpha``, with its moved means.
        log_ratio: L S: ``log π(a|s) - log π_old(a|s)``; 0 on padding.
        new_value: L S: value by the current parameters.
        num_valid: number of valid steps, summed over all devices.
        clip_eps: current clip range ε.
        clip_value_eps: current clip range of the value loss; None if it is off.
        ent_coef: current weight of the entropy bonus.
        kl_coef: current weight β of the KL penalty; None with another objective.
        hyperparameters: the traced settings: numbers, or schedules; None for those that are off.
        settings: the settings that are not traced, as in ``StaticSettings``.
        index: number of the minibatch in its epoch, from 0.
    """

    distribution: Distribution
    log_ratio: Float[Array, "L S"]
    new_value: Value
    num_valid: Scalar
    clip_eps: Scalar
    clip_value_eps: Scalar | None
    ent_coef: Scalar
    kl_coef: Scalar | None
    hyperparameters: Hyperparameters
    settings: PPOConfig = eqx.field(static=True)
    index: Int[Array, ""]

    @property
    def ratio(self) -> Float[Array, "L S"]:
        """``π(a|s) / π_old(a|s)``."""
        return probability_ratio(self.log_ratio)

    def mean(self, x: Float[Array, "L S"]) -> Scalar:
        """Mean over valid steps of all devices; ``minibatch.mean(x * m) / minibatch.mean(m)`` is the mean in a mask ``m``.

        Args:
            x: one number for each step.

        Returns:
            The mean; 0 if no step is valid.
        """
        return mean_with_count(x, self.valid, self.num_valid)


def split_sequences(steps: PyTree[Shaped[Array, "T N ..."]], length: int) -> PyTree[Shaped[Array, "L S ..."]]:
    """Cut time into contiguous sequences of ``length`` L, a divisor of T: ``[T, N] -> [T/L, L, N] -> [L, T/L * N]``.
    The steps in a plain ``reshape(L, -1)`` would not follow each other."""

    def split(x: Array) -> Array:
        count, envs, *rest = x.shape
        sequences = x.reshape((count // length, length, envs, *rest))
        return jnp.swapaxes(sequences, 0, 1).reshape((length, count // length * envs, *rest))

    return jax.tree.map(split, steps)


def join_sequences(sequences: PyTree[Shaped[Array, "L S ..."]], envs: int) -> PyTree[Shaped[Array, "T N ..."]]:
    """The inverse of ``split_sequences``, for ``N = envs``."""

    def join(x: Array) -> Array:
        length, count, *rest = x.shape
        split = x.reshape((length, count // envs, envs, *rest))
        return jnp.swapaxes(split, 0, 1).reshape((length * count // envs, envs, *rest))

    return jax.tree.map(join, sequences)


def stack_memory(memory: PyTree[Shaped[Array, "J N ..."]]) -> PyTree[Shaped[Array, "S ..."]]:
    """The memories before all sequences, in the order of ``split_sequences``."""
    return jax.tree.map(lambda m: m.reshape((m.shape[0] * m.shape[1], *m.shape[2:])), memory)


def sequences_of(rollout: Rollout, length: int) -> Sequences:
    """All sequences of ``rollout``, in the order of ``split_sequences``."""
    burn_in_steps = rollout.burn_in_steps
    if burn_in_steps is not None:
        burn_in = burn_in_steps.episode_start.shape[0]
        burn_in_steps = BurnIn(*jax.tree.map(lambda x: x[:burn_in], split_sequences(with_burn_in(rollout), length)))
    return Sequences(stack_memory(rollout.memory), burn_in_steps, *split_sequences(inputs(rollout), length))


def inputs(steps: Rollout | BurnIn | Sequences) -> tuple[Observation, Bool[Array, "..."], Bool[Array, "..."]]:
    """What ``ActorCritic.unroll`` reads besides the memory: observation, ``episode_start`` and ``valid``."""
    return steps.observation, steps.episode_start, steps.valid


def with_burn_in(rollout: Rollout) -> tuple[Observation, Bool[Array, "T N"], Bool[Array, "T N"]]:
    """``inputs`` of ``T`` steps that begin with the burn-in of the first sequence."""
    if rollout.burn_in_steps is None:
        return inputs(rollout)
    before = inputs(rollout.burn_in_steps)
    return jax.tree.map(lambda b, x: jnp.concatenate([b, x[: x.shape[0] - b.shape[0]]]), before, inputs(rollout))


def unroll(policy: ActorCritic, sequences: Sequences) -> Evaluated:
    """``policy.unroll`` over the sequences, after their burn-in."""
    memory = run_burn_in(policy, sequences.memory, sequences.burn_in_steps)
    return policy.unroll(memory, *inputs(sequences))


def run_burn_in(policy: ActorCritic, memory: Memory, burn_in_steps: BurnIn | None) -> Memory:
    """The memory (S ...) after the burn-in steps (B S ...), without a gradient; ``memory`` itself without burn-in."""
    if burn_in_steps is None:
        return memory
    return jax.lax.stop_gradient(policy.unroll(memory, *inputs(burn_in_steps)).memory)


def memories_before(policy: ActorCritic, start: Memory, steps: PyTree, length: int) -> tuple[Memory, Memory]:
    """The memory after all ``steps`` (``inputs``), and the memories before each ``length`` of them (J N ...)."""

    def unroll_piece(memory: Memory, piece: tuple) -> tuple[Memory, Memory]:
        return policy.unroll(memory, *piece).memory, memory

    return jax.lax.scan(unroll_piece, start, jax.tree.map(lambda x: x.reshape((-1, length, *x.shape[1:])), steps))


def refresh_memory(policy: ActorCritic, rollout: Rollout, length: int) -> Rollout:
    """``rollout`` with ``memory`` and ``last_memory`` by ``policy``, from the first sequence's memory on."""
    start = jax.tree.map(lambda m: m[0], rollout.memory)
    last, memory = memories_before(policy, start, with_burn_in(rollout), length)
    if rollout.burn_in_steps is not None:
        rest = rollout.episode_start.shape[0] - rollout.burn_in_steps.episode_start.shape[0]
        last = policy.unroll(last, *jax.tree.map(lambda x: x[rest:], inputs(rollout))).memory
    return dataclasses.replace(rollout, memory=memory, last_memory=last)


def make_batch(rollout: Rollout, advantage: Float[Array, "T N"], target: Value, length: int) -> Batch:
    """All sequences of ``rollout``, with the advantages and the targets of the values of its steps."""
    steps = {name: getattr(rollout, name) for name in ("action", "log_prob", "value")}
    steps |= {"advantage": advantage, "target": target}
    return Batch(**vars(sequences_of(rollout, length)), **split_sequences(steps, length))


def minibatch_indices(key: Key[Array, ""], sequences: int, num_minibatches: int) -> UInt32[Array, "M S"]:
    """The numbers ``0 … sequences - 1`` in random order, in ``M`` minibatches of ``S`` each."""
    return permutation(key, sequences).reshape(num_minibatches, -1)


MinibatchInputs = tuple[UInt32[Array, "*M S"], Float[Array, "*M L S"], Float[Array, "*M"], Int[Array, "*M"]]
"""The numbers of its sequences, their advantages, the number of valid steps of all devices, and the number of the minibatch in the epoch."""


def minibatch_inputs(batch: Batch, indices: UInt32[Array, "M S"], normalize: bool) -> MinibatchInputs:
    """The inputs of all ``M`` minibatches of an epoch, which devices reduce together: each all-reduce has a
    latency. ``normalize`` normalizes the advantages of each minibatch."""

    def of_minibatch(numbers: UInt32[Array, " S"], index: Int[Array, ""]) -> MinibatchInputs:
        advantage, target, valid = jax.tree.map(lambda x: x[:, numbers], (batch.advantage, batch.target, batch.valid))
        return numbers, normalized(advantage, target, valid) if normalize else advantage, count(valid), index

    return jax.vmap(of_minibatch)(indices, jnp.arange(len(indices)))


def take(sequences: S, indices: UInt32[Array, " S"]) -> S:
    """The sequences whose numbers are in ``indices``."""
    memory = jax.tree.map(lambda m: m[indices], sequences.memory)
    return dataclasses.replace(map_steps(lambda x: x[:, indices], sequences), memory=memory)


def map_steps(function: Callable[[Array], Array], sequences: S) -> S:
    """Apply ``function`` to all arrays of ``sequences`` besides their memory."""
    steps = jax.tree.map(function, dataclasses.replace(sequences, memory=None))
    return dataclasses.replace(steps, memory=sequences.memory)
