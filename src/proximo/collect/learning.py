"""The learner: checks before a training, the first state, and an update that NaN or infinity undoes."""

import contextlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, PyTree

from proximo import ppo
from proximo.collect.jax_vector import anywhere
from proximo.config import LEAVES, Config, learner_code
from proximo.custom_code import custom_code_errors
from proximo.envs import GymnasiumEnvironment
from proximo.envs.libraries import num_agents
from proximo.errors import ConfigError, EnvError
from proximo.math.masked_statistics import count
from proximo.networks import ActorCritic, make_policy
from proximo.networks.assembly import check_layers
from proximo.networks.custom.conformance import check_custom_networks
from proximo.networks.custom.forward import Forward
from proximo.ppo import diagnostics
from proximo.ppo.hyperparameters import Hyperparameters
from proximo.ppo.loss import loss
from proximo.ppo.minibatches import Batch
from proximo.ppo.optimizer import Learned, Optimizer
from proximo.spaces import Box, zeros
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
    return ppo.init_learner(key_learner, policy, config, hyperparameters, num_agents(env)), key_collector


def check_policy(env: Any, config: Config) -> ActorCritic:
    """Check that a policy can be made for ``env``, that ``rpo_alpha`` fits its distribution, and that custom networks,
    losses and optimizers pass the conformance checks. Only custom actors and custom cells with ``unroll`` are computed;
    all else is traced, which compiles nothing. Raises ``EnvError`` for unsupported spaces, and ``ConfigError`` for
    custom code that does not pass.

    Returns:
        The policy, with ``jax.ShapeDtypeStruct`` instead of arrays.
    """
    custom = learner_code(config)
    networks = {name for name in custom if LEAVES[name].group == "network"}
    action_space, what = env.action_space, f"The custom code of {', '.join(sorted(custom))}"
    with custom_code_errors(what, ConfigError) if custom else contextlib.nullcontext():
        if getattr(Forward.of(config.network), "predict", None) and not isinstance(env, GymnasiumEnvironment):
            raise ConfigError(f"predict runs outside JAX, on Gymnasium environments only: leave it out on {env}.")
        policy = check_custom_networks(lambda key: fresh_policy(key, env, config)) if networks else policy_shapes(env, config)
        if "actor_critic" not in networks:
            check_layers(policy, env.observation_space, config.network)
        if config.network.action_mapping == "tanh" and isinstance(action_space, Box) and not action_space.is_bounded().any():
            raise EnvError(
                f"action_mapping = tanh needs a component with bounds on both sides, and {action_space} has none: set it to clip."
            )
        if custom - networks or config.ppo.rpo_alpha:
            jax.eval_shape(lambda: _example_step(jax.random.key(0), env, config))
    return policy


def _example_step(key: Key[Array, ""], env: Any, config: Config) -> tuple[Learned, Metrics]:
    """A gradient step on a batch of zeros, for its shapes."""
    state, _ = fresh_learner(key, env, config)
    policy, shape = state.policy, (config.sequence_length, 2)
    episode_start, memory = jnp.zeros(shape, bool), policy.init_memory(shape[1])
    before = jax.tree.map(lambda x: jnp.broadcast_to(x, (shape[0], *x.shape)), policy.no_previous_step(shape[1]))
    raw = jax.tree.map(jnp.asarray, zeros(env.observation_space, shape))
    observation = policy.with_previous_step(raw, episode_start, before)
    _, distribution, value = policy.unroll(memory, observation, episode_start, ~episode_start)
    log_prob = jnp.zeros(shape)
    batch = Batch(memory, None, observation, episode_start, ~episode_start, distribution.mode(), log_prob, value, log_prob, value)
    optimizer = Optimizer(state)
    return optimizer.step(optimizer.start, lambda policy: loss(policy, state, batch, count(batch.valid), state.key))


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


def inspect(before: ppo.LearnerState, learned: ActorCritic, rollout: Rollout) -> dict[str, Any]:
    """Quantities of ``rollout`` and of the policy that has ``learned`` from it, for histograms, T N ...."""
    return {**diagnostics.learned_from(before, rollout), "ratios": diagnostics.ratios(before, learned, rollout)}
