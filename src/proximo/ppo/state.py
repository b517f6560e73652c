"""What the learner carries from update to update, and the settings that shape an update."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree, UInt32

from proximo.config import LEAVES, Config, PPOConfig
from proximo.config.custom import is_custom
from proximo.config.schedule_text import ScheduleText
from proximo.math.running_statistics import RunningStatistics
from proximo.networks import ActorCritic
from proximo.ppo.objectives import Objective, resolve_objective
from proximo.types import Hyperparameters, Schedule, steps_to_float

OPTIONAL = frozenset(name for name, hint in typing.get_type_hints(Hyperparameters).items() if type(None) in typing.get_args(hint))
"""Hyperparameters that may be off: those whose type in ``Hyperparameters`` allows None. They are off at their default, 0."""


@dataclass(frozen=True)
class StaticSettings:
    """The settings that shape the compiled update: another value of one compiles another program.

    A field that has the name of a setting of ``PPOConfig`` is a copy of it, unless ``of`` derives it.
    """

    num_epochs: int
    num_minibatches: int
    normalize_advantage: Literal["none", "batch", "minibatch"]
    recompute_advantage: bool
    refresh_memory: bool
    clip_reward: Literal["none", "sign"]
    optimizer: Literal["adam", "adamw"]
    sequence_length: int
    """Steps of each sequence; 1 without a memory."""
    diagnose_every: int
    """Updates between two diagnoses of the memory; 0: never."""
    objective: Objective
    extra_loss: Objective | None
    off: frozenset[str]
    """Names of the ``OPTIONAL`` hyperparameters that are off."""

    @classmethod
    def of(cls, config: Config) -> StaticSettings:
        """The static settings of ``config``.

        Raises:
            ConfigError: if a custom objective or extra loss cannot be found, or is not a function.
        """
        ppo = config.ppo
        copied = {field.name: getattr(ppo, field.name) for field in dataclasses.fields(cls) if hasattr(ppo, field.name)}
        derived: dict[str, Any] = {
            "sequence_length": config.sequence_length,
            "diagnose_every": config.diagnose_every,
            "objective": resolve_objective("objective", ppo.objective),
            "extra_loss": resolve_objective("extra_loss", ppo.extra_loss) if is_custom(ppo.extra_loss) else None,
            "off": frozenset(name for name in OPTIONAL if getattr(ppo, name) == LEAVES[name].default),
        }
        return cls(**{**copied, **derived})


class RewardScale(eqx.Module):
    """What rewards are scaled by.

    Attributes:
        statistics: mean and variance of the discounted return, over all environments.
        running_return: N: the discounted return of the running episode of each environment.
    """

    statistics: RunningStatistics
    running_return: Float[Array, " N"]


class AdaptiveState(eqx.Module):
    """Numbers that follow the divergence of the updates.

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
        optimizer: the state of ``ppo.optimizer.Optimizer``: Adam's moments of all parameters, as vectors.
        hyperparameters: all of them, also those that are off; see ``enabled_hyperparameters``.
        reward_scale: statistics that scale rewards; None without ``normalize_reward``.
        adaptive: β and the factor of the learning rate.
        key: random key of the next shuffle.
        steps: environment steps learned from so far, padding included, as low and high word.
        static: settings that shape the compiled update.
    """

    policy: ActorCritic
    optimizer: PyTree
    hyperparameters: Hyperparameters
    reward_scale: RewardScale | None
    adaptive: AdaptiveState
    key: Key[Array, ""]
    steps: UInt32[Array, "2"]
    static: StaticSettings = eqx.field(static=True)

    @property
    def progress(self) -> Float[Array, ""]:
        """Completed share of the training, 0 … 1. Schedules depend on it."""
        return steps_to_float(self.steps) / self.hyperparameters.total_steps

    @property
    def enabled_hyperparameters(self) -> Hyperparameters:
        """The hyperparameters, with None for those that are off."""
        off: dict[str, Any] = dict.fromkeys(self.static.off)
        return dataclasses.replace(self.hyperparameters, **off)


def make_hyperparameters(ppo: PPOConfig) -> Hyperparameters:
    """Convert settings into the arrays that a compiled update reads.

    Args:
        ppo: the settings, for instance ``Config().ppo``.

    Returns:
        The hyperparameters as float32 scalars. Stack several along a leading axis to train with ``jax.vmap`` over them.
    """

    def array(x: float) -> Array:
        return jnp.asarray(x, jnp.float32)

    def traced(value: float | ScheduleText) -> Array | Schedule:
        if isinstance(value, ScheduleText):
            return Schedule(array(value.initial), array(value.final), array(value.power), array(value.fraction))
        return array(value)

    values: dict[str, Any] = {field.name: traced(getattr(ppo, field.name)) for field in dataclasses.fields(Hyperparameters)}
    return Hyperparameters(**values)
