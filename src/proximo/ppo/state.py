"""What the learner carries from update to update."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Key, PyTree, UInt32

from proximo.config import Config
from proximo.math.running_statistics import RunningStatistics
from proximo.networks import ActorCritic
from proximo.ppo.hyperparameters import Hyperparameters, StaticSettings, make_hyperparameters
from proximo.types import steps_to_float


class RewardNormalizer(eqx.Module):
    """Statistics by which rewards are divided (``normalize_reward``).

    Attributes:
        statistics: mean and variance of the discounted return, over all environments.
        running_return: N: the discounted return of the running episode of each environment.
    """

    statistics: RunningStatistics
    running_return: Float[Array, " N"]


class AdaptiveState(eqx.Module):
    """Coefficients that each update adapts to the KL divergence that it has measured.

    Attributes:
        kl_coef: weight β of the KL penalty; None with another objective.
        rate_factor: factor of the scheduled learning rate; None unless ``desired_kl`` is set.
    """

    kl_coef: Float[Array, ""] | None
    rate_factor: Float[Array, ""] | None


class LearnerState(eqx.Module):
    """Everything that ``update`` reads and changes, except the rollout.

    Attributes:
        policy: the networks and the statistics of the normalizer.
        optimizer: the state of ``ppo.optimizer.Optimizer``: Adam's moments of all parameters, as vectors, or what a custom optimizer keeps.
        hyperparameters: all of them, including those that are off; see ``enabled_hyperparameters``.
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
    def progress(self) -> Float[Array, ""]:
        """Completed share of the training, 0 … 1. Schedules depend on it."""
        return steps_to_float(self.steps) / self.hyperparameters.total_steps

    @property
    def enabled_hyperparameters(self) -> Hyperparameters:
        """The hyperparameters, with None for those that are off."""
        off: dict[str, Any] = dict.fromkeys(self.static.off)
        return dataclasses.replace(self.hyperparameters, **off)
