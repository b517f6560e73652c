"""What the learner carries from update to update, and the settings that shape an update."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Key, PyTree, UInt32

from proximo.config import ENTRIES, LEAVES, Config
from proximo.config.custom import Custom, is_custom, is_transformation, resolve
from proximo.errors import ConfigError
from proximo.math.running_statistics import RunningStatistics
from proximo.networks import ActorCritic
from proximo.ppo.hyperparameters import OPTIONAL, TRACED, Hyperparameters, make_hyperparameters
from proximo.ppo.objectives import Objective, resolve_objective
from proximo.types import steps_to_float


@dataclasses.dataclass(frozen=True)
class StaticSettings:
    """The settings of ``PPOConfig`` that are not traced. They are constants of the compiled programs.
    ``config.schema`` describes each."""

    total_updates: int
    num_steps: int
    num_epochs: int
    num_minibatches: int
    minibatch_size: int
    normalize_advantage: str
    normalize_observation: bool | str
    clip_observation: float
    clip_reward: str
    reward_scale: float
    normalize_reward: bool | str
    recompute_advantage: bool
    sequence_length: int
    """1 without a memory."""
    burn_in: int
    refresh_memory: bool
    learner_lag: int
    objective: Objective
    kl_coef: float
    extra_loss: Objective | None
    optimizer: Any
    """``adam``, ``adamw`` or an object; likewise ``critic_optimizer``, which may also be ``same``."""
    critic_optimizer: Any
    b1: float
    b2: float
    eps: float
    diagnose_every: int
    """Updates between two diagnoses of the memory; 0: never."""
    off: frozenset[str]
    """Names of the ``OPTIONAL`` hyperparameters that are off."""

    @classmethod
    def of(cls, config: Config) -> StaticSettings:
        """The static settings of ``config``. Raises ``ConfigError`` for custom code of the wrong kind."""
        ppo, fields = config.ppo, {field.name for field in dataclasses.fields(cls)}
        leaves = [leaf for leaf in (*LEAVES.values(), *ENTRIES.values()) if leaf.group == "ppo" and leaf.entry in fields]
        copied = {leaf.entry: leaf.value_in(config) for leaf in leaves}
        derived: dict[str, Any] = {
            "sequence_length": config.sequence_length,
            "diagnose_every": config.diagnose_every,
            "objective": resolve_objective("objective", ppo.objective),
            "extra_loss": resolve_objective("extra_loss", ppo.extra_loss) if is_custom(ppo.extra_loss) else None,
            "optimizer": resolve_optimizer("optimizer", ppo.optimizer),
            "critic_optimizer": resolve_optimizer("critic_optimizer", ppo.critic_optimizer),
            "off": frozenset(name for name in OPTIONAL if TRACED[name].value_in(config) == TRACED[name].default),
        }
        return cls(**{**copied, **derived})


def resolve_optimizer(setting: str, value: str | Custom) -> Any:
    """The custom code that ``setting`` is or names; a word such as ``adam`` stays a word."""
    if not is_custom(value):
        return value
    found = resolve(setting, value, ("__call__",))
    if not is_transformation(found) and (inspect.isclass(found) or not callable(found)):
        raise ConfigError(
            f"{setting} = {value}: expected an optax transformation, such as optax.adam(3e-4), or a function that makes one from the "
            "learning rate, such as optax.sgd."
        )
    return found


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
