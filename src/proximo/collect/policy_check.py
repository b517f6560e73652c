"""Checks, before a training, that a policy can be made for an environment, and that custom code works."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from proximo.collect.learning import fresh_learner, fresh_policy, policy_shapes
from proximo.config import LEAVES, Config, custom_settings
from proximo.custom_code import custom_code_errors
from proximo.envs import GymnasiumEnvironment
from proximo.errors import ConfigError, EnvError
from proximo.math.masked_statistics import count
from proximo.networks import ActorCritic
from proximo.networks.assembly import check_layers
from proximo.networks.custom.conformance import check_custom_networks
from proximo.networks.custom.forward import Forward
from proximo.ppo.loss import loss
from proximo.ppo.minibatches import Batch
from proximo.ppo.optimizer import Learned, Optimizer
from proximo.spaces import Box, zeros
from proximo.types import Metrics


def check_policy(env: Any, config: Config) -> ActorCritic:
    """Check that a policy can be made for ``env``, and that custom networks, losses and optimizers pass the conformance checks.
    Only these are computed. Raises ``EnvError`` for unsupported spaces, and ``ConfigError`` for custom code that does not pass.

    Returns:
        The policy, with ``jax.ShapeDtypeStruct`` instead of arrays.
    """
    custom = custom_settings(config).keys()
    networks = {name for name in custom if LEAVES[name].group == "network"}
    action_space, what = env.action_space, f"The custom code of {', '.join(custom)}"
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
        if custom - networks:
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
    batch = Batch(memory, None, observation, episode_start, ~episode_start, distribution.mode(), value, value, value, value)
    optimizer = Optimizer(state)
    return optimizer.step(optimizer.start, lambda policy: loss(policy, state, batch, count(batch.valid)))
