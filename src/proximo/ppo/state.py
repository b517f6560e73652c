"""What the learner carries from update to update, and which of it follows the divergence of the policy."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree, UInt32

from proximo.config import Config
from proximo.math.running_statistics import RunningStatistics
from proximo.networks import ActorCritic
from proximo.ppo.hyperparameters import Hyperparameters, StaticSettings, make_hyperparameters
from proximo.types import Scalar, steps_to_float

RATE_RANGE = (1e-5, 1e-2)
"""The adapted learning rate stays within this range."""
RATE_FACTOR = 1.5
COEF_RANGE = (1e-6, 1e6)
"""β stays within this range: repeated halving would otherwise reach 0, which no doubling leaves."""


class RewardNormalizer(eqx.Module):
    """Statistics by which rewards are divided (``normalize_reward``).

    Attributes:
        statistics: mean and variance of the discounted return, over all environments.
        running_return: N: the discounted return of the running episode of each agent of each environment.
    """

    statistics: RunningStatistics
    running_return: Float[Array, " N"]


class AdaptiveState(eqx.Module):
    """Coefficients that each update adapts to the KL divergence that it has measured.

    Attributes:
        kl_coef: weight β of the KL penalty; None with another objective.
        rate_factor: factor of the scheduled learning rate; None unless ``desired_kl`` is set.
    """

    kl_coef: Scalar | None
    rate_factor: Scalar | None


class LearnerState(eqx.Module):
    """Everything that ``update`` reads and changes, except the rollout.

    Attributes:
        policy: the networks and the statistics of the normalizer.
        optimizer: the state of ``ppo.optimizer.Optimizer``: Adam's moments of all parameters, as vectors, or what a custom optimizer keeps.
        hyperparameters: the traced settings; None for those that are off.
        reward_normalizer: statistics that normalize rewards; None without ``normalize_reward``.
        adaptive: β and the factor of the learning rate.
        key: random key of the next shuffle.
        steps: environment steps learned from so far, padding included, as low and high word.
        static: settings that shape the compiled update.
    """

    policy: ActorCritic
    optimizer: PyTree
    hyperparameters: Hyperparameters
    reward_normalizer: RewardNormalizer | None
    adaptive: AdaptiveState
    key: Key[Array, ""]
    steps: UInt32[Array, "2"]
    static: StaticSettings = eqx.field(static=True)

    def with_settings(self, config: Config) -> LearnerState:
        """The same learner with the hyperparameters and static settings of ``config``."""
        return dataclasses.replace(self, hyperparameters=make_hyperparameters(config.ppo), static=StaticSettings.of(config))

    @property
    def progress(self) -> Scalar:
        """Completed share of the training, 0 … 1. Schedules depend on it."""
        return steps_to_float(self.steps) / self.hyperparameters.total_steps

    @property
    def learning_rate(self) -> Scalar:
        """The learning rate of the schedule. With ``desired_kl``, it is raised to the lower end of
        ``RATE_RANGE``, multiplied by the adapted factor, and clipped to ``RATE_RANGE``."""
        rate, factor = self.hyperparameters.learning_rate(self.progress), self.adaptive.rate_factor
        return rate if factor is None else jnp.clip(jnp.maximum(rate, RATE_RANGE[0]) * factor, *RATE_RANGE)


def adapt(state: LearnerState, divergence: Scalar) -> AdaptiveState:
    """Adapt β and the learning rate to the KL ``divergence`` that an update has caused.

    Source: Schulman et al. 2017, arXiv:1707.06347: β in section 4, a learning rate that follows the divergence in
    appendix A, table 4. The rule for the learning rate is from Rudin et al. 2021, arXiv:2109.11978.
    """
    h, adaptive = state.hyperparameters, state.adaptive
    if adaptive.kl_coef is not None:
        halved = jnp.where(divergence < h.kl_target / 1.5, 0.5, 1.0)
        factor = jnp.where(divergence > h.kl_target * 1.5, 2.0, halved)
        coef = jnp.where(h.kl_target > 0, jnp.clip(adaptive.kl_coef * factor, *COEF_RANGE), adaptive.kl_coef)
        adaptive = dataclasses.replace(adaptive, kl_coef=coef)
    if adaptive.rate_factor is not None and h.desired_kl is not None:
        raised = jnp.where(divergence < h.desired_kl / 2.0, RATE_FACTOR, 1.0)
        rate = state.learning_rate * jnp.where(divergence > h.desired_kl * 2.0, 1.0 / RATE_FACTOR, raised)
        scheduled_rate = jnp.maximum(h.learning_rate(state.progress), RATE_RANGE[0])
        adaptive = dataclasses.replace(adaptive, rate_factor=rate / scheduled_rate)
    return adaptive
