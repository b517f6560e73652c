"""The transitions that an update learns from, and the ratios that it leads to: for histograms, not for learning."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
from jaxtyping import Array, Float

from proximo.math.loss_terms import probability_ratio
from proximo.networks import ActorCritic
from proximo.ppo.minibatches import join_sequences, sequences_of, split_sequences, unroll
from proximo.ppo.rollout_processing import compute_advantages, scale_rewards
from proximo.ppo.state import LearnerState
from proximo.types import Rollout


def learned_from(state: LearnerState, rollout: Rollout) -> dict[str, Any]:
    """What ``ppo.update(state, rollout)`` learns from in its first epoch, for the learner before the update.

    Values are those that were collected. With ``recompute_advantage``, the update computes them again if the policy has changed since
    then (``learner_lag``).

    Returns:
        With axes ``T N ...``: ``advantages`` before they are normalized; ``returns``, the targets of the value in units of the scaled
        reward; ``actions`` as the environment received them; ``observations`` as it returned them; ``valid``.
    """
    _, scaled = scale_rewards(state, rollout)
    advantage = compute_advantages(scaled, state.hyperparameters)
    return {
        "advantages": advantage,
        "returns": advantage + rollout.value,
        "actions": jax.vmap(state.policy.to_space)(rollout.action),
        "observations": rollout.observation,
        "valid": rollout.valid,
    }


def ratios(before: LearnerState, policy: ActorCritic, rollout: Rollout) -> Float[Array, "T N"]:
    """Probability ratio of each action: its probability under ``policy``, after an update, divided by that under the policy that acted.

    Observations are normalized by the statistics from ``before`` the update, so that only the parameters differ.
    """
    policy, length = dataclasses.replace(policy, normalizer=before.policy.normalizer), before.static.sequence_length
    _, distribution, _ = unroll(policy, sequences_of(rollout, length))
    log_ratio = distribution.log_prob(split_sequences(rollout.action, length)) - split_sequences(rollout.log_prob, length)
    return join_sequences(probability_ratio(log_ratio), rollout.episode_start.shape[1])
