"""Proximal Policy Optimization (Schulman et al. 2017, arXiv:1707.06347): algorithm 1 from the estimates of advantages on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree, UInt32

from proximo.networks import ActorCritic
from proximo.ppo.adaptive import adapt
from proximo.ppo.loss import loss
from proximo.ppo.metrics import summarize
from proximo.ppo.minibatches import Batch, shuffled, take
from proximo.ppo.optimizer import flatten_policy, make_optimizer
from proximo.ppo.rollout_processing import clip_rewards, normalize_advantage, observe, prepare_batch, scale_rewards
from proximo.ppo.state import LearnerState
from proximo.types import Metrics, Rollout, add_steps

Parameters = Float[Array, " P"]
Carry = tuple[Parameters, PyTree, Bool[Array, ""]]
"""What gradient steps change: trainable parameters, the optimizer's state, and whether gradient steps are still taken (``target_kl``)."""


def update(state: LearnerState, rollout: Rollout) -> tuple[LearnerState, Metrics]:
    """Learn from one rollout: ``num_epochs`` passes of ``num_minibatches`` gradient steps on the clipped surrogate.

    The function is pure and knows nothing about environments.

    Args:
        state: the learner.
        rollout: ``T N`` transitions, collected with ``state.policy``.

    Returns:
        The learner after the update, and metrics of the update (scalars, see docs/metrics.md).
    """
    static = state.static
    key, shuffle_key = jax.random.split(state.key)
    reward_scale, rollout = scale_rewards(state, clip_rewards(static, rollout))
    batch = prepare_batch(state, rollout)

    parameters, policy_of = flatten_policy(state.policy)
    start = (parameters, state.optimizer, jnp.array(True))
    epochs = jax.random.split(shuffle_key, static.num_epochs)

    def learn_epoch(carry: Carry, key: Key[Array, ""]) -> tuple[Carry, Metrics]:
        """One pass over the rollout, in minibatches of random sequences."""
        current = batch
        if static.refresh_memory or static.recompute_advantage:
            current = prepare_batch(state, rollout, policy_of(carry[0]))
        minibatches = shuffled(key, batch.valid.shape[1], static.num_minibatches)
        return jax.lax.scan(partial(gradient_step, state, current, policy_of), carry, minibatches)

    (parameters, optimizer, _), steps = jax.lax.scan(learn_epoch, start, epochs)

    learned = LearnerState(
        policy=observe(policy_of(parameters), rollout),
        optimizer=optimizer,
        hyperparameters=state.hyperparameters,
        reward_scale=reward_scale,
        adaptive=adapt(state, steps),
        key=key,
        steps=add_steps(state.steps, rollout.episode_start.size),
        static=static,
    )
    return learned, summarize(state, batch, steps)


def gradient_step(
    state: LearnerState, batch: Batch, policy_of: Callable[[Parameters], ActorCritic], carry: Carry, index: UInt32[Array, " B"]
) -> tuple[Carry, Metrics]:
    """One step of the optimizer on the sequences ``index``. No step is taken once the approximate KL exceeds ``target_kl``."""
    parameters, optimizer_state, active = carry
    minibatch = take(batch, index)
    if state.static.normalize_advantage == "minibatch":
        minibatch = normalize_advantage(minibatch)

    gradient_of = jax.value_and_grad(lambda parameters: loss(policy_of(parameters), state, minibatch), has_aux=True)
    (_, metrics), gradient = gradient_of(parameters)
    change, new_optimizer_state = make_optimizer(state).update(gradient, optimizer_state, parameters)
    new_parameters = jax.tree.map(jnp.add, parameters, change)

    target_kl = state.enabled_hyperparameters.target_kl
    if target_kl is not None:
        active = active & (metrics["approx_kl"] <= target_kl)
        new_parameters = jnp.where(active, new_parameters, parameters)
        new_optimizer_state = jax.tree.map(partial(jnp.where, active), new_optimizer_state, optimizer_state)
    metrics |= {"grad_norm": jnp.linalg.norm(gradient), "active": active.astype(jnp.float32)}
    return (new_parameters, new_optimizer_state, active), metrics
