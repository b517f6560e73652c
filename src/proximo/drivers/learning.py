"""What both drivers do around the learner: its first state, and an update that NaN or infinity cannot spoil."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, PyTree

from proximo import ppo
from proximo.config import Config, own_code
from proximo.drivers.vector import anywhere
from proximo.networks import ActorCritic, make_policy
from proximo.networks.laws import hold_alike, hold_laws, is_held
from proximo.ppo import diagnosis
from proximo.ppo.algorithm import loss
from proximo.ppo.batch import Batch
from proximo.ppo.rollouts import health
from proximo.spaces import from_any, zeros
from proximo.types import Hyperparameters, Metrics, Rollout

BAD_SOURCES = ("observation", "reward", "loss", "gradient", "parameters")


def hold_policy(env: Any, config: Config) -> None:
    """Raise ``EnvError`` where no policy can be made for the spaces of ``env``, ``ConfigError`` where networks of the user's, or losses, break the
    laws that they are held against. Compiles and computes something only where the settings have such."""
    own = own_code(config).keys()

    def shapes() -> ActorCritic:
        return jax.eval_shape(lambda key: fresh_policy(key, env, config), jax.random.key(0))

    policy = shapes()
    if own - {"objective", "extra_loss"}:
        hold_alike(policy, shapes())
        if is_held(policy):
            observation_space, action_space = from_any(env.observation_space, "observation"), from_any(env.action_space, "action")
            hold_laws(jax.jit(lambda key: fresh_policy(key, env, config))(jax.random.key(0)), observation_space, action_space)
    if own & {"objective", "extra_loss"}:
        jax.eval_shape(lambda key: _trial(key, env, config), jax.random.key(0))


def _trial(key: Key[Array, ""], env: Any, config: Config) -> tuple[Array, Metrics]:
    """The loss of some rows of nothing, for its shapes."""
    state, _ = fresh_learner(key, env, config, ppo.make_hyperparameters(config.ppo))
    policy, shape = state.policy, (config.sequence_length, 2)
    first, memory = jnp.zeros(shape, bool), policy.init_memory(shape[1])
    before = jax.tree.map(lambda x: jnp.broadcast_to(x, (shape[0], *x.shape)), policy.nothing_before(shape[1]))
    space = from_any(env.observation_space, "observation")
    observation = policy.observed(jax.tree.map(jnp.asarray, zeros(space, shape)), first, before)
    _, distribution, value = policy.unroll(memory, observation, first, ~first)
    rows = Batch(observation, first, distribution.mode(), value, value, value, value, ~first, memory)
    return loss(policy, state, rows)


def fresh_policy(key: Key[Array, ""], env: Any, config: Config) -> ActorCritic:
    """A policy for the environment's spaces. Raises ``EnvError`` where a space is not supported."""
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
    """``learner`` for new episodes in all environments: the running returns that scale rewards are 0, their statistics stay."""
    scale = learner.reward_scale
    if scale is None:
        return learner
    scale = dataclasses.replace(scale, running_return=jnp.zeros_like(scale.running_return))
    return dataclasses.replace(learner, reward_scale=scale)


def learn(
    state: ppo.LearnerState, healthy: Bool[Array, ""], rollout: Rollout, seeds_axis: bool = False
) -> tuple[ppo.LearnerState, Bool[Array, ""], Metrics]:
    """``ppo.update``, whether all was finite until now, and the metrics with a flag for each source of what was not. The state
    is not yet held back: ``kept`` does it."""
    learned, metrics = ppo.update(state, rollout)
    bad = health(rollout, metrics, learned)
    healthy = healthy & ~jnp.any(jnp.stack([bad[source] for source in BAD_SOURCES]))
    flags = {f"bad/{source}": bad[source].astype(jnp.float32) for source in BAD_SOURCES}
    looked = {}
    if state.plan.diagnose_every:
        due, length = anywhere(diagnosis.is_due(state, rollout), seeds_axis), state.plan.sequence_length
        looked = jax.lax.cond(due, lambda: diagnosis.diagnose(learned.policy, rollout, length), diagnosis.nothing)
    groups = {"train": metrics, "memory": looked}
    named = {f"{group}/{name}": x for group, metrics in groups.items() for name, x in metrics.items()}
    return learned, healthy, {**named, **flags}


def kept(healthy: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    """``new``, or from the first NaN or infinity on ``old``."""
    return jax.tree.map(lambda a, b: jnp.where(healthy, a, b), new, old)
