"""What the learner carries from update to update."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Key, PyTree, UInt32

from proximo.config import LEAVES, Config, PPOConfig
from proximo.errors import ConfigError
from proximo.math.statistics import RunningStatistics
from proximo.networks import ActorCritic
from proximo.own_code import is_own
from proximo.ppo.objectives import Objective, function_of
from proximo.schedule_text import ScheduleText
from proximo.types import Hyperparameters, Schedule, steps_to_float


@dataclass(frozen=True)
class Plan:
    """The settings that shape the compiled update; every number that does not is traced (``Hyperparameters``)."""

    num_epochs: int
    num_minibatches: int
    sequence_length: int
    normalize_advantage: Literal["none", "batch", "minibatch"]
    recompute_advantage: bool
    refresh_memory: bool
    diagnose_every: int
    clip_reward: Literal["none", "sign"]
    clip_value: bool
    stop_at_kl: bool
    decay_weights: bool
    objective: Objective
    extra_loss: Objective | None
    dual_clip: bool
    critic_learning_rate: bool
    adapt_learning_rate: bool

    @classmethod
    def of(cls, config: Config) -> Plan:
        """The plan that ``config`` asks for."""
        ppo = config.ppo
        return cls(
            num_epochs=ppo.num_epochs,
            num_minibatches=ppo.num_minibatches,
            sequence_length=config.sequence_length,
            normalize_advantage=ppo.normalize_advantage,
            recompute_advantage=ppo.recompute_advantage,
            diagnose_every=config.diagnose_every,
            refresh_memory=ppo.refresh_memory,
            clip_reward=ppo.clip_reward,
            clip_value=ppo.clip_value_eps > 0,
            stop_at_kl=ppo.target_kl > 0,
            decay_weights=ppo.optimizer == "adamw",
            objective=function_of("objective", ppo.objective),
            extra_loss=function_of("extra_loss", ppo.extra_loss) if is_own(ppo.extra_loss) else None,
            dual_clip=ppo.dual_clip > 0,
            critic_learning_rate=ppo.critic_learning_rate != LEAVES["critic_learning_rate"].default,
            adapt_learning_rate=ppo.desired_kl > 0,
        )


class RewardScale(eqx.Module):
    """Statistics of the discounted return, and the return that each environment has reached."""

    statistics: RunningStatistics
    running_return: Float[Array, " N"]


class Adapted(eqx.Module):
    """What follows the divergence of the updates; None where it is not asked for."""

    kl_coef: Float[Array, ""] | None
    rate_factor: Float[Array, ""] | None
    """What the scheduled learning rate is multiplied by."""


class LearnerState(eqx.Module):
    """Everything that ``update`` reads and renews beside the rollout."""

    policy: ActorCritic
    optimizer: PyTree
    """Adam's moments, over all trainable parameters as one flat vector: leaf by leaf costs 40 % on a small network."""
    hyperparameters: Hyperparameters
    reward_scale: RewardScale | None
    adapted: Adapted
    key: Key[Array, ""]
    steps: UInt32[Array, "2"]
    """Environment steps learned from, filler rows included, as low and high word."""
    plan: Plan = eqx.field(static=True)

    @property
    def progress(self) -> Float[Array, ""]:
        """Share of the training that is over, 0 … 1: what schedules run on."""
        return steps_to_float(self.steps) / self.hyperparameters.total_steps


def make_hyperparameters(ppo: PPOConfig) -> Hyperparameters:
    """The traced numbers of ``ppo`` as float32 arrays."""

    def array(x: float) -> Array:
        return jnp.asarray(x, jnp.float32)

    def schedule(text: ScheduleText) -> Schedule:
        return Schedule(array(text.initial), array(text.final), array(text.power), array(text.fraction))

    schedules: dict[str, Any] = {
        name: schedule(getattr(ppo, name)) for name in ("learning_rate", "critic_learning_rate", "ent_coef", "clip_eps")
    }
    names = (
        "gamma", "gae_lambda", "vf_coef", "clip_value_eps", "dual_clip", "kl_target", "desired_kl", "max_grad_norm", "target_kl",
        "weight_decay", "total_steps",
    )  # fmt: skip
    numbers: dict[str, Any] = {name: array(getattr(ppo, name)) for name in names}
    return Hyperparameters(**schedules, **numbers)


def split_policy(policy: ActorCritic) -> tuple[ActorCritic, ActorCritic]:
    """(trainable parameters, the rest: normaliser statistics and static parts); ``eqx.combine`` joins them."""
    trainable = jax.tree.map(eqx.is_inexact_array, policy)
    trainable = dataclasses.replace(trainable, normalizer=jax.tree.map(lambda _: False, policy.normalizer))
    return eqx.partition(policy, trainable)


def of_value_alone(policy: ActorCritic) -> Bool[Array, " parameters"]:
    """Which of the trainable parameters, as one flat vector, only the value uses."""
    trainable, _ = split_policy(policy)
    marked = jax.tree.map(lambda x: jnp.zeros(x.shape, bool), trainable)
    ours = [marked.critic, *marked.torsos[1:]]
    theirs = jax.tree.map(jnp.ones_like, ours)
    marked = eqx.tree_at(lambda p: [p.critic, *p.torsos[1:]], marked, theirs)
    return ravel_pytree(marked)[0]


def decayed(policy: ActorCritic) -> Bool[Array, " parameters"]:
    """Mask of the trainable parameters, as one flat vector, that ``weight_decay`` shrinks: weight matrices and convolution kernels.

    These are the arrays of two or more axes whose name begins with ``weight`` or ``kernel`` (in Flax, Equinox and proximo). Biases,
    ``log_std``, normalization gains and the eigenvalues of an LRU are not decayed, because zero is not a neutral value for them.
    """
    trainable, _ = split_policy(policy)
    marks = jax.tree_util.tree_map_with_path(lambda path, x: jnp.full(x.shape, _is_weight(path, x)), trainable)
    return ravel_pytree(marks)[0]


def _is_weight(path: tuple[Any, ...], leaf: Array) -> bool:
    # The last two names: an nnx parameter is an attribute of its variable.
    names = [str(getattr(key, "name", getattr(key, "key", ""))) for key in path[-2:]]
    return leaf.ndim >= 2 and any(name.startswith(("weight", "kernel")) for name in names)


def make_optimizer(hyperparameters: Hyperparameters) -> optax.GradientTransformation:
    """Global-norm clipping, then Adam with ε = 1e-5 (Kingma & Ba 2015, arXiv:1412.6980). The update adds the weight decay and
    applies the learning rate."""
    return optax.chain(optax.clip_by_global_norm(hyperparameters.max_grad_norm), optax.scale_by_adam(eps=1e-5))


def init_learner(key: Key[Array, ""], policy: ActorCritic, config: Config, hyperparameters: Hyperparameters) -> LearnerState:
    """The state before the first update."""
    plan = Plan.of(config)
    trainable, _ = split_policy(policy)
    vector, _ = ravel_pytree(trainable)
    if config.ppo.weight_decay and not any(_is_weight(*leaf) for leaf in jax.tree_util.tree_leaves_with_path(trainable)):
        raise ConfigError(
            f"weight_decay = {config.ppo.weight_decay} decays arrays of two or more axes that are named weight... or kernel..., "
            "and this policy has none: rename the weight matrices of the custom network, or set weight_decay = 0."
        )
    scale = None
    if config.ppo.normalize_reward:
        scale = RewardScale(RunningStatistics.of_shape(()), jnp.zeros(config.env.num_envs))
    return LearnerState(
        policy=policy,
        optimizer=make_optimizer(hyperparameters).init(vector),
        hyperparameters=hyperparameters,
        reward_scale=scale,
        adapted=Adapted(
            kl_coef=jnp.asarray(config.ppo.kl_coef, jnp.float32) if config.ppo.objective == "kl_penalty" else None,
            rate_factor=jnp.ones(()) if plan.adapt_learning_rate else None,
        ),
        key=key,
        steps=jnp.zeros(2, jnp.uint32),
        plan=plan,
    )
