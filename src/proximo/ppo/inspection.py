"""What an update learns from and what comes of it, row by row: for histograms, never for learning."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
from jaxtyping import Array, Float

from proximo.math.losses import probability_ratio
from proximo.networks import ActorCritic
from proximo.ppo.algorithm import advantages
from proximo.ppo.batch import cut, join, sequences_of, unroll
from proximo.ppo.rollouts import clip_rewards, scale_rewards
from proximo.ppo.state import LearnerState
from proximo.types import Rollout


def learned_from(state: LearnerState, rollout: Rollout) -> dict[str, Any]:
    """What ``ppo.update(state, rollout)`` begins with: ``advantages`` before they are normalised, ``returns`` (what the value
    is fitted to: advantage plus value, in the units of the scaled reward), ``actions`` as the environment got them,
    ``observations`` as it gave them, ``valid`` rows; T N each."""
    _, scaled = scale_rewards(state, clip_rewards(state.plan, rollout))
    advantage = advantages(scaled, state)
    return {
        "advantages": advantage,
        "returns": advantage + rollout.value,
        "actions": jax.vmap(state.policy.to_space)(rollout.action),
        "observations": rollout.observation,
        "valid": rollout.valid,
    }


def ratios(before: LearnerState, policy: ActorCritic, rollout: Rollout) -> Float[Array, "T N"]:
    """Probability of each action under the ``policy`` that has learned, divided by that under the one which acted. Observations
    are normalised as they were ``before``, so that nothing but the parameters tells the two apart."""
    policy, length = dataclasses.replace(policy, normalizer=before.policy.normalizer), before.plan.sequence_length
    _, distribution, _ = unroll(policy, sequences_of(rollout, length))
    log_ratio = distribution.log_prob(cut(rollout.action, length)) - cut(rollout.log_prob, length)
    return join(probability_ratio(log_ratio), rollout.first.shape[1])
