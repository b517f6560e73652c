"""Proximal Policy Optimization (Schulman et al. 2017, arXiv:1707.06347): the learning part of algorithm 1."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from proximo.math.across_devices import num_devices, own_key
from proximo.ppo.adaptive import adapt
from proximo.ppo.loss import loss
from proximo.ppo.metrics import summarize
from proximo.ppo.minibatches import Batch, MinibatchInputs, minibatch_indices, minibatch_inputs, take
from proximo.ppo.optimizer import Learned, Optimizer
from proximo.ppo.rollout_processing import prepare_batch, scale_rewards, update_normalizer
from proximo.ppo.state import LearnerState
from proximo.types import Metrics, Rollout, add_steps

Carry = tuple[Learned, Bool[Array, ""]]
"""What gradient steps change, and whether they are still taken (``target_kl``)."""


def update(state: LearnerState, rollout: Rollout) -> tuple[LearnerState, Metrics]:
    """Learn from one rollout: ``num_epochs`` passes of ``num_minibatches`` gradient steps on the clipped surrogate.

    The function is pure and knows nothing about environments. On several devices, each has the transitions of its
    environments, and draws equally many sequences for each minibatch. All means are global (``math.across_devices``).

    Args:
        state: the learner.
        rollout: ``T N`` transitions, collected with ``state.policy``.

    Returns:
        The learner after the update, and metrics of the update (scalars, see docs/metrics.md).
    """
    static = state.static.ppo
    key, shuffle_key = jax.random.split(state.key)
    reward_normalizer, scaled = scale_rewards(state, rollout)
    batch = prepare_batch(state, scaled)
    num_sequences = batch.valid.shape[1]
    optimizer = Optimizer(state)

    def learn_epoch(carry: Carry, epoch_key: Key[Array, ""]) -> tuple[Carry, Metrics]:
        """One pass over the rollout, in minibatches of random sequences."""
        learned, _ = carry
        recomputes = static.refresh_memory or static.recompute_advantage
        epoch_batch = prepare_batch(state, scaled, optimizer.policy(learned)) if recomputes else batch
        indices = minibatch_indices(own_key(epoch_key), num_sequences, static.num_minibatches)
        minibatches = minibatch_inputs(epoch_batch, indices, normalize=static.normalize_advantage == "minibatch")
        return jax.lax.scan(partial(gradient_step, state, optimizer, epoch_batch), carry, minibatches)

    start = (optimizer.start, jnp.array(True))
    epoch_keys = jax.random.split(shuffle_key, static.num_epochs)
    (learned, _), step_metrics = jax.lax.scan(learn_epoch, start, epoch_keys)

    new_state = dataclasses.replace(
        state,
        policy=update_normalizer(optimizer.policy(learned), rollout),
        optimizer=learned.optimizer_state,
        reward_normalizer=reward_normalizer,
        adaptive=adapt(state, step_metrics),
        key=key,
        steps=add_steps(state.steps, rollout.episode_start.size * num_devices()),
    )
    return new_state, summarize(state, batch, step_metrics)


def gradient_step(
    state: LearnerState, optimizer: Optimizer, batch: Batch, carry: Carry, inputs: MinibatchInputs
) -> tuple[Carry, Metrics]:
    """One step of the optimizer on the minibatch of ``batch`` with these ``inputs``. If the approximate KL
    exceeds ``target_kl``, this step and all later ones of the update are discarded."""
    (learned, active), (indices, advantage, num_valid, index) = carry, inputs
    minibatch = dataclasses.replace(take(batch, indices), advantage=advantage)

    stepped, metrics = optimizer.step(learned, lambda policy: loss(policy, state, minibatch, num_valid, index))

    target_kl = state.enabled_hyperparameters.target_kl
    if target_kl is not None:
        active = active & (metrics["approx_kl"] <= target_kl)
        stepped = jax.tree.map(partial(jnp.where, active), stepped, learned)
    return (stepped, active), {**metrics, "active": active.astype(jnp.float32)}
