"""Proximal Policy Optimization, as in the paper (Schulman et al. 2017, arXiv:1707.06347, algorithm 1)."""

from __future__ import annotations

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from proximo.errors import ConfigError
from proximo.math import losses
from proximo.math.advantages import generalized_advantages
from proximo.math.schedules import scheduled
from proximo.networks import ActorCritic
from proximo.ppo.adaptation import adapt, learning_rate, looked_at
from proximo.ppo.batch import Batch, cut, make_batch, shuffled, take, unroll
from proximo.ppo.objectives import Minibatch, evaluated
from proximo.ppo.rollouts import clip_rewards, count_steps, observe, recompute_values, refresh_memory, scale_rewards
from proximo.ppo.state import LearnerState, Plan, decayed, make_optimizer, of_value_alone, split_policy
from proximo.types import Hyperparameters, Metrics, Rollout

OF_UPDATE = (
    "grad_norm", "active", "explained_variance", "learning_rate", "critic_learning_rate", "clip_eps", "ent_coef", "kl_coef",
    "gradient_steps", "extra_loss",
)  # fmt: skip
"""Metrics of an update beside those of its loss."""


def update(state: LearnerState, rollout: Rollout) -> tuple[LearnerState, Metrics]:
    """Learn from one rollout: several epochs of minibatches over the clipped surrogate. Pure, blind to environments."""
    plan = state.plan
    key, key_shuffle = jax.random.split(state.key)
    reward_scale, rollout = scale_rewards(state, clip_rewards(plan, rollout))
    trainable, rest = split_policy(state.policy)
    vector, unravel = ravel_pytree(trainable)
    sequences = rollout.first.size // plan.sequence_length

    def assemble(vector: Array) -> ActorCritic:
        return eqx.combine(unravel(vector), rest)

    def renewed(policy: ActorCritic) -> Rollout:
        fresh = refresh_memory(policy, rollout, plan.sequence_length) if plan.refresh_memory else rollout
        return recompute_values(policy, fresh, plan.sequence_length) if plan.recompute_advantage else fresh

    def prepare(fresh: Rollout) -> Batch:
        batch = make_batch(fresh, advantages(fresh, state), plan.sequence_length)
        # The clip of the value loss stays centred on the values of the policy that acted, like the clip of the ratio.
        batch = dataclasses.replace(batch, value=cut(rollout.value, plan.sequence_length))
        return normalized(batch) if plan.normalize_advantage == "batch" else batch

    def epoch(carry: tuple, key: Array) -> tuple[tuple, Metrics]:
        batch = prepare(renewed(assemble(carry[0]))) if plan.refresh_memory or plan.recompute_advantage else once
        step = partial(minibatch_step, state, assemble, batch)
        return jax.lax.scan(step, carry, shuffled(key, sequences, plan.num_minibatches))

    once = prepare(rollout)
    start = (vector, state.optimizer, jnp.array(True))
    (vector, optimizer, _), metrics = jax.lax.scan(epoch, start, jax.random.split(key_shuffle, plan.num_epochs))
    policy = observe(assemble(vector), rollout)
    steps = count_steps(state.steps, rollout)
    adapted = adapt(state, metrics)
    learned = LearnerState(policy, optimizer, state.hyperparameters, reward_scale, adapted, key, steps, plan)
    return learned, summary(metrics, once, state)


def advantages(rollout: Rollout, state: LearnerState) -> Float[Array, "T N"]:
    """Generalised advantages of all environments."""
    over_envs = jax.vmap(generalized_advantages, in_axes=(1, 1, 0, 1, 1, 1, 1, None, None), out_axes=1)
    h = state.hyperparameters
    r = rollout
    return over_envs(r.reward, r.value, r.last_value, r.bootstrap, r.terminated, r.truncated, r.valid, h.gamma, h.gae_lambda)


def rates(state: LearnerState) -> Float[Array, "*parameters"]:
    """The learning rate, of what only the value uses another one where it is asked for: one number, or one for each parameter."""
    h, progress = state.hyperparameters, state.progress
    rate = learning_rate(state)
    if not state.plan.critic_learning_rate:
        return rate
    return jnp.where(of_value_alone(state.policy), scheduled(h.critic_learning_rate, progress), rate)


def minibatch_step(state: LearnerState, assemble, batch: Batch, carry: tuple, index: Array) -> tuple[tuple, Metrics]:
    """One gradient step; a no-op for the rest of the update once the approximate KL has passed ``target_kl``."""
    vector, optimizer_state, active = carry
    h, plan = state.hyperparameters, state.plan
    minibatch = take(batch, index)
    if plan.normalize_advantage == "minibatch":
        minibatch = normalized(minibatch)
    gradient_of = jax.value_and_grad(lambda v: loss(assemble(v), state, minibatch), has_aux=True)
    (_, metrics), gradient = gradient_of(vector)
    if plan.stop_at_kl:
        active = active & (metrics["approx_kl"] <= h.target_kl)
    direction, stepped_state = make_optimizer(h).update(gradient, optimizer_state, vector)
    if plan.decay_weights:  # decoupled: it does not enter Adam's moments (Loshchilov & Hutter 2019, arXiv:1711.05101)
        direction = jnp.asarray(direction) + h.weight_decay * jnp.where(decayed(state.policy), vector, 0.0)
    stepped = vector - rates(state) * jnp.asarray(direction)
    metrics |= {"grad_norm": jnp.linalg.norm(gradient), "active": active.astype(jnp.float32)}
    if plan.stop_at_kl:
        stepped, stepped_state = jax.tree.map(partial(jnp.where, active), (stepped, stepped_state), (vector, optimizer_state))
    return (stepped, stepped_state, active), metrics


def loss(policy: ActorCritic, state: LearnerState, batch: Batch) -> tuple[Float[Array, ""], Metrics]:
    """``-L^CLIP + c₁ L^VF - c₂ S`` (equation 9), or with another objective in the first place; means over the rows that count, and the
    diagnostics of the step."""
    h, plan = state.hyperparameters, state.plan
    minibatch = read(policy, state, batch)
    policy_loss, told = evaluated("objective", plan.objective, policy, minibatch)
    added: Metrics = {}
    value_loss = minibatch.mean(value_losses(minibatch, h, plan))
    entropy = minibatch.mean(minibatch.distribution.entropy())
    total = policy_loss + h.vf_coef * value_loss - scheduled(h.ent_coef, state.progress) * entropy
    if plan.extra_loss is not None:
        extra, more = evaluated("extra_loss", plan.extra_loss, policy, minibatch)
        total, told, added = total + extra, joined(told, more), {"extra_loss": extra}

    ratio = minibatch.ratio
    metrics = {
        "loss": total,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": minibatch.mean(losses.approximate_kl(minibatch.log_ratio)),
        "clip_fraction": minibatch.mean((jnp.abs(ratio - 1.0) > minibatch.clip_eps).astype(ratio.dtype)),
        "ratio_min": jnp.min(ratio, where=minibatch.valid, initial=jnp.inf),
        "ratio_max": jnp.max(ratio, where=minibatch.valid, initial=-jnp.inf),
    }
    return total, {**joined(metrics, told), **added}


def read(policy: ActorCritic, state: LearnerState, batch: Batch) -> Minibatch:
    """``batch``, and what ``policy`` says of its rows."""
    h, plan = state.hyperparameters, state.plan
    _, distribution, value = unroll(policy, batch)
    return Minibatch(
        **{field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)},
        distribution=distribution,
        log_ratio=jnp.where(batch.valid, distribution.log_prob(batch.action) - batch.log_prob, 0.0),
        new_value=value,
        clip_eps=scheduled(h.clip_eps, state.progress),
        dual_clip=h.dual_clip if plan.dual_clip else None,
        kl_coef=state.adapted.kl_coef,
    )


def value_losses(minibatch: Minibatch, h: Hyperparameters, plan: Plan) -> Float[Array, "L S"]:
    """``L^VF`` row by row, clipped where it is asked for."""
    if plan.clip_value:
        return losses.clipped_value_loss(minibatch.new_value, minibatch.value, minibatch.target, h.clip_value_eps)
    return losses.value_loss(minibatch.new_value, minibatch.target)


def joined(metrics: Metrics, told: Metrics) -> Metrics:
    """``metrics`` and what functions of the user's have ``told``. Raises ``ConfigError`` where both have a name."""
    for name in told:
        if name in metrics or name in OF_UPDATE:
            raise ConfigError(f"The metric {name!r} of an objective or an extra loss is there already: give it another name.")
    return {**metrics, **told}


def normalized(batch: Batch) -> Batch:
    """The batch with advantages of mean 0 and standard deviation 1 over its valid rows."""
    return dataclasses.replace(batch, advantage=losses.normalized(batch.advantage, batch.valid))


def summary(metrics: Metrics, batch: Batch, state: LearnerState) -> Metrics:
    """Means over the gradient steps that were taken (the one that stopped them included), and the extremes of the ratio."""
    h: Hyperparameters = state.hyperparameters
    active = metrics.pop("active")
    seen = looked_at(active)
    extremes = {
        "ratio_min": jnp.min(jnp.where(seen, metrics.pop("ratio_min"), jnp.inf)),
        "ratio_max": jnp.max(jnp.where(seen, metrics.pop("ratio_max"), -jnp.inf)),
    }
    means = {name: losses.masked_mean(x, seen) for name, x in metrics.items()}
    return {
        **means,
        **extremes,
        "explained_variance": losses.explained_variance(batch.value, batch.target, batch.valid),
        "learning_rate": learning_rate(state),
        "clip_eps": scheduled(h.clip_eps, state.progress),
        "ent_coef": scheduled(h.ent_coef, state.progress),
        "gradient_steps": jnp.sum(active),
        **(
            {"critic_learning_rate": scheduled(h.critic_learning_rate, state.progress)} if state.plan.critic_learning_rate else {}
        ),
        **({} if state.adapted.kl_coef is None else {"kl_coef": state.adapted.kl_coef}),
    }
