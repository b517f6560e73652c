"""The learner's first state, and an update that is dropped if it has NaN or infinity."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, PyTree

from proximo import ppo
from proximo.collect.jax_vector import anywhere
from proximo.config import Config
from proximo.networks import ActorCritic, make_policy
from proximo.ppo import diagnostics
from proximo.ppo.hyperparameters import Hyperparameters
from proximo.types import Metrics, Rollout

BAD_SOURCES = ("observation", "reward", "loss", "gradient", "parameters")


def fresh_policy(key: Key[Array, ""], env: Any, config: Config) -> ActorCritic:
    """A policy for the environment's spaces. Raises ``EnvError`` if a space is not supported."""
    spaces = env.observation_space, env.action_space
    return make_policy(key, *spaces, config.network, config.ppo.normalize_observation, config.ppo.clip_observation)


def policy_shapes(env: Any, config: Config) -> ActorCritic:
    """``fresh_policy`` with ``jax.ShapeDtypeStruct`` instead of arrays. Nothing is compiled."""
    return jax.eval_shape(lambda: fresh_policy(jax.random.key(0), env, config))


def fresh_learner(
    key: Key[Array, ""], env: Any, config: Config, hyperparameters: Hyperparameters | None = None
) -> tuple[ppo.LearnerState, Key[Array, ""]]:
    """The learner before the first step, and a key for the collector."""
    key_policy, key_learner, key_collector = jax.random.split(key, 3)
    policy = fresh_policy(key_policy, env, config)
    hyperparameters = hyperparameters or ppo.make_hyperparameters(config.ppo)
    return ppo.init_learner(key_learner, policy, config, hyperparameters), key_collector


def without_running_return(learner: ppo.LearnerState) -> ppo.LearnerState:
    """``learner`` for new episodes in all environments: the running returns that scale rewards are 0."""
    if learner.reward_normalizer is None:
        return learner
    return eqx.tree_at(lambda state: state.reward_normalizer.running_return, learner, replace_fn=jnp.zeros_like)


def learn(
    state: ppo.LearnerState, healthy: Bool[Array, ""], rollout: Rollout, seeds_axis: bool = False
) -> tuple[ppo.LearnerState, Bool[Array, ""], Metrics]:
    """``ppo.update``. An update with NaN or infinity, and all later ones, leave the learner unchanged. Returns the learner,
    whether every number was finite so far, and the metrics with a flag ``bad/…`` for each source of NaN or infinity."""
    learned, metrics = ppo.update(state, rollout)
    bad = diagnostics.find_non_finite(rollout, metrics, state, learned)
    healthy = healthy & ~jnp.any(jnp.stack([bad[source] for source in BAD_SOURCES]))
    flags = {f"bad/{source}": bad[source].astype(jnp.float32) for source in BAD_SOURCES}
    named = {f"train/{name}": x for name, x in metrics.items()}
    if state.static.diagnose_every:
        due, length = anywhere(diagnostics.memory_is_due(state, rollout), seeds_axis), state.static.ppo.sequence_length
        no_numbers = {"staleness": jnp.array(jnp.nan), "use": jnp.array(jnp.nan)}
        diagnosed = jax.lax.cond(due, lambda: diagnostics.diagnose_memory(learned.policy, rollout, length), lambda: no_numbers)
        named |= {f"memory/{name}": x for name, x in diagnosed.items()}
    return kept(healthy, learned, state), healthy, {**named, **flags}


def kept(healthy: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    """``new`` if all numbers were finite so far, else ``old``."""
    return jax.tree.map(lambda a, b: jnp.where(healthy, a, b), new, old)
