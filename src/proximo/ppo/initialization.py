"""The state of a learner before its first update."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from proximo.config import Config
from proximo.errors import ConfigError
from proximo.math.running_statistics import RunningStatistics
from proximo.networks import ActorCritic
from proximo.ppo.hyperparameters import Hyperparameters, StaticSettings, check_enabled
from proximo.ppo.optimizer import Optimizer, split_policy, weight_mask
from proximo.ppo.state import AdaptiveState, LearnerState, RewardNormalizer


def init_learner(key: Key[Array, ""], policy: ActorCritic, config: Config, hyperparameters: Hyperparameters) -> LearnerState:
    """The state of a learner before its first update.

    Args:
        key: random key; updates draw their shuffles from it.
        policy: the initial policy.
        config: the settings.
        hyperparameters: as ``make_hyperparameters(config.ppo)`` returns them; they may be traced.

    Raises:
        ConfigError: if the policy has no weight matrix for ``weight_decay``, or if a hyperparameter is not off as in the
            config.
    """
    ppo, static = config.ppo, StaticSettings.of(config)
    decay = ppo.optimizer_settings.weight_decay
    if decay and not any(jax.tree.leaves(weight_mask(split_policy(policy)[0]))):
        raise ConfigError(
            f"weight_decay = {decay} decays arrays of two or more axes that are named weight... or kernel..., "
            "and this policy has none: rename the weight matrices of the custom network, or set weight_decay = 0."
        )
    check_enabled(hyperparameters, static.off)
    returns = RewardNormalizer(RunningStatistics.of_shape(()), jnp.zeros(config.env.num_envs))
    kl_coef = jnp.float32(ppo.objective_settings.kl_coef) if ppo.objective == "kl_penalty" else None
    state = LearnerState(
        policy=policy,
        optimizer=None,
        hyperparameters=hyperparameters,
        reward_normalizer=returns if ppo.normalizes_reward else None,
        adaptive=AdaptiveState(kl_coef, rate_factor=None if "desired_kl" in static.off else jnp.ones(())),
        key=key,
        steps=jnp.zeros(2, jnp.uint32),
        static=static,
    )
    return dataclasses.replace(state, optimizer=Optimizer(state).init())
