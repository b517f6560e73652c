"""What happens to a rollout before and after the gradient steps."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from proximo.math.advantages import generalized_advantages
from proximo.math.masked_statistics import normalized
from proximo.math.running_statistics import discounted_returns
from proximo.networks import ActorCritic
from proximo.networks.normalizer import with_observations
from proximo.ppo.hyperparameters import Hyperparameters
from proximo.ppo.minibatches import Batch, join_sequences, make_batch, refresh_memory, sequences_of, split_sequences, unroll
from proximo.ppo.state import LearnerState, RewardNormalizer
from proximo.types import Rollout, Value


def scale_rewards(state: LearnerState, rollout: Rollout) -> tuple[RewardNormalizer | None, Rollout]:
    """Scale rewards as the learner reads them: by ``reward_scale``, by their sign (``clip_reward``), by ``normalize_reward``.

    With ``normalize_reward``, they are divided by the standard deviation of the discounted return and
    clipped to ± 10. The statistics of the return include this rollout before its rewards are divided.

    Returns:
        The new statistics (None without ``normalize_reward``), and the rollout with scaled rewards.
    """
    static, normalizer = state.static.ppo, state.reward_normalizer
    reward = rollout.reward if static.reward_scale == 1 else static.reward_scale * rollout.reward
    if static.clip_reward == "sign":
        reward = jnp.sign(reward)
    if normalizer is not None:
        # Padding steps also reset the running return, because a lost environment was replaced there.
        done, gamma = rollout.terminated | rollout.truncated, state.hyperparameters.gamma
        running, returns = discounted_returns(normalizer.running_return, reward, done, rollout.valid, gamma)
        normalizer = RewardNormalizer(normalizer.statistics.merged(returns, rollout.valid), running)
        reward = jnp.clip(reward / jnp.sqrt(normalizer.statistics.variance + 1e-8), -10.0, 10.0)
    return normalizer, dataclasses.replace(rollout, reward=reward)


def prepare_batch(state: LearnerState, rollout: Rollout, policy: ActorCritic | None = None) -> Batch:
    """Compute the advantages and targets of a rollout with scaled rewards, and split it into sequences.
    Before each epoch, ``policy`` is the current policy. It recomputes memories (``refresh_memory``) and
    values (``recompute_advantage``). ``value`` keeps the values of the policy that acted, because the value
    clip is centered on it."""
    static, renewed = state.static.ppo, rollout
    if policy is not None and static.refresh_memory:
        renewed = refresh_memory(policy, renewed, static.sequence_length)
    if policy is not None and static.recompute_advantage:
        renewed = recompute_values(policy, renewed, static.sequence_length)
    batch = make_batch(renewed, *compute_advantages(renewed, state.hyperparameters), static.sequence_length)
    batch = dataclasses.replace(batch, value=split_sequences(rollout.value, static.sequence_length))
    if static.normalize_advantage == "batch":
        batch = dataclasses.replace(batch, advantage=normalized(batch.advantage, batch.target, batch.valid))
    return batch


def compute_advantages(rollout: Rollout, h: Hyperparameters) -> tuple[Float[Array, "T N"], Value]:
    """Generalized advantages of all environments, by ``gamma`` and ``gae_lambda`` (``generalized_advantages``), and the
    targets of the values, which are ``advantage + value``."""
    advantages = partial(generalized_advantages, gamma=h.gamma, gae_lambda=h.gae_lambda)
    values = rollout.reward, rollout.value, rollout.last_value, rollout.bootstrap_value
    flags = rollout.terminated, rollout.truncated, rollout.valid
    advantage = jax.vmap(advantages, in_axes=(1, 1, 0, 1, 1, 1, 1), out_axes=1)(*values, *flags)
    return advantage, advantage + rollout.value


def recompute_values(policy: ActorCritic, rollout: Rollout, length: int) -> Rollout:
    """``rollout`` with ``value`` and ``last_value`` computed with ``policy``. ``bootstrap_value`` stays,
    because the rollout does not contain the final observations of truncated episodes."""
    value = join_sequences(unroll(policy, sequences_of(rollout, length)).value, rollout.episode_start.shape[1])
    last_value = policy.value(rollout.last_memory, rollout.last_observation, rollout.last_episode_start)
    return dataclasses.replace(rollout, value=value, last_value=last_value)


def update_normalizer(policy: ActorCritic, rollout: Rollout) -> ActorCritic:
    """``policy`` whose normalizer includes the valid observations of ``rollout``. It is called after the
    update, so that the statistics do not change from the first step to the last minibatch."""
    return dataclasses.replace(policy, normalizer=with_observations(policy.normalizer, rollout.observation, rollout.valid))
