"""Behavior cloning: fit a policy to the actions of demonstrations. PPO can then continue from it."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PyTree, Shaped, UInt32

from proximo.distributions import Gaussian
from proximo.math.masked_statistics import masked_mean
from proximo.math.shuffling import permutation
from proximo.networks import ActorCritic
from proximo.networks.normalizer import with_observations
from proximo.ppo.minibatches import Sequences, inputs, map_steps, memories_before, split_sequences, stack_memory, take, unroll
from proximo.ppo.optimizer import split_policy
from proximo.types import Scalar


class Demonstrations(Sequences):
    """Consecutive steps of demonstrations. Before they are split, there is one sequence of all steps: ``S`` is 1."""

    action: Shaped[Array, "L S ..."]
    """As the distribution would have sampled it."""


def clone(
    key: Key[Array, ""],
    policy: ActorCritic,
    demonstrations: Demonstrations,
    learning_rate: Scalar,
    max_grad_norm: Scalar,
    num_epochs: int,
    num_sequences: int,
    length: int,
) -> tuple[ActorCritic, Float[Array, " epochs"]]:
    """Maximize the log-likelihood of the demonstrated actions with Adam, in gradient steps on ``num_sequences`` sequences of ``length`` steps.

    The normalizer first includes the demonstrated observations. Before each epoch, the memory before each sequence
    is recomputed with the current parameters. ``demonstrations`` is one sequence of all steps, whose number is a multiple of ``length``.

    Returns:
        The fitted policy, and the mean of ``-log π(a|s)`` during each epoch.
    """
    optimizer = optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.adam(learning_rate, eps=1e-5))
    normalizer = with_observations(policy.normalizer, demonstrations.observation, demonstrations.valid)
    trainable, constants = split_policy(dataclasses.replace(policy, normalizer=normalizer))

    def epoch(carry: PyTree, key: Key[Array, ""]) -> tuple[PyTree, Scalar]:
        sequences = split(eqx.combine(carry[0], constants), demonstrations, length)
        count = sequences.valid.shape[1]
        per_step = min(num_sequences, count)
        minibatches = permutation(key, count)[: count // per_step * per_step].reshape(-1, per_step)

        def gradient_step(carry: PyTree, indices: UInt32[Array, " size"]) -> tuple[PyTree, Array]:
            trainable, state = carry
            minibatch = take(sequences, indices)
            loss, gradient = jax.value_and_grad(lambda p: cloning_loss(eqx.combine(p, constants), minibatch))(trainable)
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(trainable, updates), state), loss

        carry, losses = jax.lax.scan(gradient_step, carry, minibatches)
        return carry, jnp.mean(losses)

    start = trainable, optimizer.init(trainable)
    (trainable, _), losses = jax.lax.scan(epoch, start, jax.random.split(key, num_epochs))
    return eqx.combine(trainable, constants), losses


def cloning_loss(policy: ActorCritic, sequences: Demonstrations) -> Scalar:
    """The mean of ``-log π(a|s)`` over valid steps, without a gradient of the standard deviation of a
    Gaussian. With this gradient, the standard deviation would shrink towards 0 where demonstrations always
    agree, and PPO could no longer explore."""
    distribution = unroll(policy, sequences).distribution
    if isinstance(distribution, Gaussian):
        distribution = dataclasses.replace(distribution, log_std=jax.lax.stop_gradient(distribution.log_std))
    return -masked_mean(distribution.log_prob(sequences.action), sequences.valid)


def padded(demonstrations: Demonstrations, length: int) -> Demonstrations:
    """``demonstrations`` with padding steps at the end, so that their number is a multiple of ``length``."""
    count = demonstrations.valid.shape[0]
    missing = -count % length
    padded = map_steps(lambda x: jnp.concatenate([x, jnp.repeat(x[-1:], missing, axis=0)]), demonstrations)
    return dataclasses.replace(padded, valid=jnp.arange(count + missing)[:, None] < count)


def split(policy: ActorCritic, demonstrations: Demonstrations, length: int) -> Demonstrations:
    """Sequences of ``length`` steps, with the memory of ``policy`` before each."""
    sequences = map_steps(lambda x: split_sequences(x, length), demonstrations)
    if not policy.is_recurrent:
        return sequences
    _, memory = memories_before(policy, demonstrations.memory, inputs(demonstrations), length)
    return dataclasses.replace(sequences, memory=stack_memory(memory))
