"""Proximal Policy Optimization (Schulman et al. 2017, arXiv:1707.06347): the learning part of algorithm 1."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from proximo.config import Config
from proximo.errors import ConfigError
from proximo.math.across_devices import own_key
from proximo.math.running_statistics import RunningStatistics
from proximo.networks import ActorCritic
from proximo.ppo.hyperparameters import Hyperparameters, StaticSettings
from proximo.ppo.loss import loss
from proximo.ppo.metrics import largest_divergence, summarize
from proximo.ppo.minibatches import Batch, MinibatchInputs, minibatch_indices, minibatch_inputs, take
from proximo.ppo.optimizer import Learned, Optimizer, split_policy, weight_mask
from proximo.ppo.rollout_processing import prepare_batch, scale_rewards, update_normalizer
from proximo.ppo.state import AdaptiveState, LearnerState, RewardNormalizer, adapt
from proximo.types import Metrics, Rollout, add_steps

Carry = tuple[Learned, Bool[Array, ""]]
"""What gradient steps change, and whether they are still taken (``target_kl``)."""


def update(state: LearnerState, rollout: Rollout) -> tuple[LearnerState, Metrics]:
    """Learn from one rollout: ``num_epochs`` passes of ``num_minibatches`` gradient steps on the loss (``ppo.loss.loss``).

    The function is pure and knows nothing about environments. On several devices, each has the transitions of its
    environments, and draws equally many sequences for each minibatch. All means are global (``math.across_devices``).

    Args:
        state: the learner.
        rollout: ``T N`` transitions, collected with ``state.policy``.

    Returns:
        The learner after the update, and metrics of the update (scalars, see docs/metrics.md).
    """
    static = state.static.ppo
    key, shuffle_key, noise_key = jax.random.split(state.key, 3)
    reward_normalizer, scaled = scale_rewards(state, rollout)
    batch = prepare_batch(state, scaled)
    num_sequences = batch.valid.shape[1]
    optimizer = Optimizer(state)

    def learn_epoch(carry: Carry, keys: tuple[Key[Array, ""], Key[Array, ""]]) -> tuple[Carry, Metrics]:
        """One pass over the rollout, in minibatches of random sequences."""
        (learned, _), (epoch_key, noise_key) = carry, keys
        recomputes = static.refresh_memory or static.recompute_advantage
        epoch_batch = prepare_batch(state, scaled, optimizer.policy(learned)) if recomputes else batch
        indices = minibatch_indices(own_key(epoch_key), num_sequences, static.num_minibatches)
        minibatches = minibatch_inputs(epoch_batch, indices, normalize=static.normalize_advantage == "minibatch")
        return jax.lax.scan(partial(gradient_step, state, optimizer, epoch_batch, own_key(noise_key)), carry, minibatches)

    start = (optimizer.start, jnp.array(True))
    keys = jax.random.split(shuffle_key, static.num_epochs), jax.random.split(noise_key, static.num_epochs)
    (learned, _), step_metrics = jax.lax.scan(learn_epoch, start, keys)

    new_state = dataclasses.replace(
        state,
        policy=update_normalizer(optimizer.policy(learned), rollout),
        optimizer=learned.optimizer_state,
        reward_normalizer=reward_normalizer,
        adaptive=adapt(state, largest_divergence(step_metrics)),
        key=key,
        steps=add_steps(state.steps, state.static.batch_size),
    )
    return new_state, summarize(state, batch, step_metrics)


def gradient_step(
    state: LearnerState, optimizer: Optimizer, batch: Batch, noise_key: Key[Array, ""], carry: Carry, inputs: MinibatchInputs
) -> tuple[Carry, Metrics]:
    """One step of the optimizer on the minibatch of ``batch`` with these ``inputs``. If the approximate KL
    exceeds ``target_kl``, this step and all later ones of the update are discarded."""
    (learned, active), (indices, advantage, num_valid, index) = carry, inputs
    minibatch = dataclasses.replace(take(batch, indices), advantage=advantage)
    key = jax.random.fold_in(noise_key, index)

    stepped, metrics = optimizer.step(learned, lambda policy: loss(policy, state, minibatch, num_valid, key, index))

    target_kl = state.hyperparameters.target_kl
    if target_kl is not None:
        active = active & (metrics["approx_kl"] <= target_kl)
        stepped = jax.tree.map(partial(jnp.where, active), stepped, learned)
    return (stepped, active), {**metrics, "active": active.astype(jnp.float32)}


def init_learner(
    key: Key[Array, ""], policy: ActorCritic, config: Config, hyperparameters: Hyperparameters, num_agents: int = 1
) -> LearnerState:
    """The state of a learner before its first update.

    Args:
        key: random key; updates draw their shuffles from it.
        policy: the initial policy.
        config: the settings.
        hyperparameters: as ``make_hyperparameters(config.ppo)`` returns them; they may be traced.
        num_agents: agents of one environment.

    Raises:
        ConfigError: if the policy has no weight matrix for ``weight_decay``.
    """
    ppo = config.ppo
    decay = ppo.optimizer_settings.weight_decay
    if decay and not any(jax.tree.leaves(weight_mask(split_policy(policy)[0]))):
        raise ConfigError(
            f"weight_decay = {decay} decays arrays of two or more axes that are named weight... or kernel..., "
            "and this policy has none: rename the weight matrices of the custom network, or set weight_decay = 0."
        )
    returns = RewardNormalizer(RunningStatistics.of_shape(()), jnp.zeros(config.env.num_envs * num_agents))
    kl_coef = jnp.float32(ppo.objective_settings.kl_coef) if ppo.objective == "kl_penalty" else None
    state = LearnerState(
        policy=policy,
        optimizer=None,
        hyperparameters=hyperparameters,
        reward_normalizer=returns if ppo.normalizes_reward else None,
        adaptive=AdaptiveState(kl_coef, rate_factor=None if hyperparameters.desired_kl is None else jnp.ones(())),
        key=key,
        steps=jnp.zeros(2, jnp.uint32),
        static=StaticSettings.of(config),
    )
    return dataclasses.replace(state, optimizer=Optimizer(state).init())
