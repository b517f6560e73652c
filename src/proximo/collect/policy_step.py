"""One step of ``N`` JAX environments with a policy: act, step, remember. Training and evaluation both use it."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Key, PyTree

from proximo.collect import jax_vector
from proximo.envs.protocol import JaxEnvironment
from proximo.networks import ActorCritic
from proximo.types import Memory, Observation, Previous


class StepState(NamedTuple):
    """What the environments and the policy pass on from step to step, N ...: the observation as the environments returned it, and the
    previous action and reward, if the policy observes them."""

    env_state: PyTree
    observation: Observation
    memory: Memory
    previous: Previous | None


def policy_step(
    env: JaxEnvironment,
    policy: ActorCritic,
    before: StepState,
    episode_start: Bool[Array, " N"],
    valid: Bool[Array, " N"],
    noise: PyTree | None,
    keys: Key[Array, " N"],
    params: PyTree,
) -> tuple[StepState, dict[str, Any], Bool[Array, " N"] | None]:
    """Act and step. Without ``noise``, from ``policy.actor.noise``, the actions are the most probable ones. Where
    ``valid`` is false, the memory stays as it was.

    Returns what is passed on, the step as fields of ``Rollout``, and which environments report a success (None if
    they never do). Environments whose episode ended are not reset.
    """
    observed = policy.with_previous_step(before.observation, episode_start, before.previous)
    memory, action, log_prob, value = policy.act(before.memory, observed, episode_start, valid, noise)
    env_state, observation, reward, terminated, truncated, success = jax_vector.step(
        env, keys, before.env_state, policy.to_space(action), before.observation, params
    )
    after = StepState(env_state, observation, memory, policy.previous_step(action, reward))
    acted = {"observation": observed, "action": action, "log_prob": log_prob, "value": value}
    return after, {**acted, "reward": reward, "terminated": terminated, "truncated": truncated}, success
