"""The learner, for JAX and Gymnasium environments alike: its first state, and an update whose result is dropped if it is NaN or infinite."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, PyTree

from proximo import ppo
from proximo.collect.jax_vector import anywhere
from proximo.config import Config, custom_settings
from proximo.networks import ActorCritic, make_policy
from proximo.networks.custom.conformance import check_custom_networks
from proximo.ppo import memory_diagnostics
from proximo.ppo.loss import loss
from proximo.ppo.minibatches import Batch
from proximo.ppo.nonfinite import find_nonfinite
from proximo.spaces import from_any, zeros
from proximo.types import Hyperparameters, Metrics, Rollout

BAD_SOURCES = ("observation", "reward", "loss", "gradient", "parameters")


def check_policy(env: Any, config: Config) -> None:
    """Check that a policy can be made for ``env``, and that custom networks and losses pass the conformance checks. Only these
    are compiled and computed.

    Raises:
        EnvError: the spaces of ``env`` are not supported.
        ConfigError: custom code does not pass.
    """
    custom = custom_settings(config).keys()

    def make(key: Key[Array, ""]) -> ActorCritic:
        return fresh_policy(key, env, config)

    if custom - {"objective", "extra_loss"}:
        check_custom_networks(make, from_any(env.observation_space, "observation"), from_any(env.action_space, "action"))
    else:
        jax.eval_shape(make, jax.random.key(0))
    if custom & {"objective", "extra_loss"}:
        jax.eval_shape(lambda key: _example_loss(key, env, config), jax.random.key(0))


def _example_loss(key: Key[Array, ""], env: Any, config: Config) -> tuple[Array, Metrics]:
    """The loss of a batch of zeros, for its shapes."""
    state, _ = fresh_learner(key, env, config, ppo.make_hyperparameters(config.ppo))
    policy, shape = state.policy, (config.sequence_length, 2)
    episode_start, memory = jnp.zeros(shape, bool), policy.init_memory(shape[1])
    before = jax.tree.map(lambda x: jnp.broadcast_to(x, (shape[0], *x.shape)), policy.no_previous_step(shape[1]))
    space = from_any(env.observation_space, "observation")
    observation = policy.with_previous_step(jax.tree.map(jnp.asarray, zeros(space, shape)), episode_start, before)
    _, distribution, value = policy.unroll(memory, observation, episode_start, ~episode_start)
    batch = Batch(memory, None, observation, episode_start, ~episode_start, distribution.mode(), value, value, value, value)
    return loss(policy, state, batch)


def fresh_policy(key: Key[Array, ""], env: Any, config: Config) -> ActorCritic:
    """A policy for the environment's spaces. Raises ``EnvError`` if a space is not supported."""
    spaces = from_any(env.observation_space, "observation"), from_any(env.action_space, "action")
    return make_policy(key, *spaces, config.network, config.ppo.normalize_observation, config.ppo.clip_observation)


def fresh_learner(
    key: Key[Array, ""], env: Any, config: Config, hyperparameters: Hyperparameters
) -> tuple[ppo.LearnerState, Key[Array, ""]]:
    """The learner before the first step, and a key for the collector."""
    key_policy, key_learner, key_collector = jax.random.split(key, 3)
    policy = fresh_policy(key_policy, env, config)
    return ppo.init_learner(key_learner, policy, config, hyperparameters), key_collector


def without_running_return(learner: ppo.LearnerState) -> ppo.LearnerState:
    """``learner`` for new episodes in all environments: the running returns that scale rewards are reset to 0, and their
    statistics stay."""
    scale = learner.reward_scale
    if scale is None:
        return learner
    scale = dataclasses.replace(scale, running_return=jnp.zeros_like(scale.running_return))
    return dataclasses.replace(learner, reward_scale=scale)


def learn(
    state: ppo.LearnerState, healthy: Bool[Array, ""], rollout: Rollout, seeds_axis: bool = False
) -> tuple[ppo.LearnerState, Bool[Array, ""], Metrics]:
    """``ppo.update``.

    Returns:
        The learner after the update, whether every number was finite so far, and the metrics with a flag ``bad/…`` for each
        source of NaN or infinity. The learner is returned as it is: ``kept`` drops one with NaN.
    """
    learned, metrics = ppo.update(state, rollout)
    bad = find_nonfinite(rollout, metrics, learned)
    healthy = healthy & ~jnp.any(jnp.stack([bad[source] for source in BAD_SOURCES]))
    flags = {f"bad/{source}": bad[source].astype(jnp.float32) for source in BAD_SOURCES}
    diagnosed = {}
    if state.static.diagnose_every:
        due, length = anywhere(memory_diagnostics.is_due(state, rollout), seeds_axis), state.static.sequence_length
        diagnosed = jax.lax.cond(
            due, lambda: memory_diagnostics.diagnose(learned.policy, rollout, length), memory_diagnostics.not_measured
        )
    groups = {"train": metrics, "memory": diagnosed}
    named = {f"{group}/{name}": x for group, metrics in groups.items() for name, x in metrics.items()}
    return learned, healthy, {**named, **flags}


def kept(healthy: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    """``new``; from the first NaN or infinity on ``old``."""
    return jax.tree.map(lambda a, b: jnp.where(healthy, a, b), new, old)
