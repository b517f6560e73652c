"""What happens to a rollout before and after the gradient steps: scaling, recomputing, counting, observing."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

from proximo.math.statistics import discounted_returns
from proximo.networks import ActorCritic
from proximo.networks.normalizer import observed
from proximo.ppo.batch import join, sequences_of, unroll, with_warmup
from proximo.ppo.state import LearnerState, Plan, RewardScale
from proximo.types import Memory, Metrics, Rollout, add_steps

REWARD_CLIP = 10.0


def clip_rewards(plan: Plan, rollout: Rollout) -> Rollout:
    """Rewards as ``clip_reward`` asks for them: their sign, or as they are."""
    return dataclasses.replace(rollout, reward=jnp.sign(rollout.reward)) if plan.clip_reward == "sign" else rollout


def scale_rewards(state: LearnerState, rollout: Rollout) -> tuple[RewardScale | None, Rollout]:
    """Rewards divided by the standard deviation of the discounted return (with PPO's own γ), clipped to ± 10.

    The statistics include this rollout before its rewards are scaled; the running return starts anew with each episode.
    """
    scale = state.reward_scale
    if scale is None:
        return None, rollout
    # In an invalid row too: an environment that was lost there is another one since.
    done = rollout.terminated | rollout.truncated
    running, returns = discounted_returns(scale.running_return, rollout.reward, done, rollout.valid, state.hyperparameters.gamma)
    statistics = scale.statistics.merged(returns, rollout.valid)
    reward = rollout.reward / jnp.sqrt(statistics.variance + 1e-8)
    return RewardScale(statistics, running), dataclasses.replace(rollout, reward=jnp.clip(reward, -REWARD_CLIP, REWARD_CLIP))


def recompute_values(policy: ActorCritic, rollout: Rollout, length: int) -> Rollout:
    """``value`` and ``last_value`` under the current parameters; ``bootstrap`` stays as it was collected."""
    _, _, value = unroll(policy, sequences_of(rollout, length))
    last_value = policy.value(rollout.last_memory, rollout.last_observation, rollout.last_first)
    return dataclasses.replace(rollout, value=join(value, rollout.first.shape[1]), last_value=last_value)


def refresh_memory(policy: ActorCritic, rollout: Rollout, length: int) -> Rollout:
    """``memory`` and ``last_memory`` under the current parameters, from the memory before the first sequence on."""
    rows = with_warmup(rollout)
    pieces = jax.tree.map(lambda x: x.reshape((-1, length, *x.shape[1:])), rows)

    def piece(memory: Memory, rows: tuple) -> tuple[Memory, Memory]:
        return policy.unroll(memory, *rows)[0], memory

    start = jax.tree.map(lambda m: m[0], rollout.memory)
    last, memory = jax.lax.scan(piece, start, pieces)
    if rollout.warmup is not None:
        rest = rollout.first.shape[0] - rollout.warmup.first.shape[0]
        rows = (rollout.observation, rollout.first, rollout.valid)
        last, _, _ = policy.unroll(last, *jax.tree.map(lambda x: x[rest:], rows))
    return dataclasses.replace(rollout, memory=memory, last_memory=last)


def observe(policy: ActorCritic, rollout: Rollout) -> ActorCritic:
    """The policy whose normaliser has seen the valid rows of ``rollout``: only now, so that it was frozen during it."""
    return dataclasses.replace(policy, normalizer=observed(policy.normalizer, rollout.observation, rollout.valid))


def count_steps(steps: UInt32[Array, "2"], rollout: Rollout) -> UInt32[Array, "2"]:
    """The step counter after ``rollout``."""
    return add_steps(steps, rollout.first.size)


def health(rollout: Rollout, metrics: Metrics, state: LearnerState) -> dict[str, Array]:
    """By source, whether anything is NaN or infinite: in valid observations, the last one and final ones; in valid
    rewards and their statistics; in the loss; in the norm of the gradient; in the parameters."""

    def bad(x: Array, valid: Array | None = None) -> Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return jnp.array(False)
        broken = ~jnp.isfinite(x)
        if valid is not None:
            broken &= valid.reshape(valid.shape + (1,) * (x.ndim - valid.ndim))
        return jnp.any(broken)

    observations = [bad(x, rollout.valid) for x in jax.tree.leaves(rollout.observation)]
    # A truncated episode's final observation is not stored: a bootstrap that is not finite tells of it.
    observations += [bad(x) for x in (*jax.tree.leaves(rollout.last_observation), rollout.bootstrap)]
    # A huge reward is finite and its square, in the statistics that scale rewards, is not.
    rewards = [bad(rollout.reward, rollout.valid), *(bad(x) for x in jax.tree.leaves(state.reward_scale))]
    return {
        "observation": jnp.any(jnp.stack(observations)),
        "reward": jnp.any(jnp.stack(rewards)),
        "loss": bad(metrics["loss"]),
        # Clipping divides by the norm: a gradient with an infinite norm would silently be clipped to zero, even if the loss is finite.
        "gradient": bad(metrics["grad_norm"]),
        # Those of the normaliser too: numbers that are finite in an observation may overflow in its statistics.
        "parameters": jnp.any(jnp.stack([bad(x) for x in jax.tree.leaves(eqx.filter(state.policy, eqx.is_array))])),
    }
