"""PPO's loss on one minibatch, with its metrics. Objectives are functions ``(policy, minibatch) -> (loss, metrics)``.

To change the value loss, edit ``value_loss_per_step``, and the formulas in docs/algorithm.md and docs/metrics.md. It can
read every setting of ``PPOConfig``: traced ones from ``minibatch.hyperparameters``, others from ``minibatch.settings``.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from proximo.distributions import Distribution, Gaussian
from proximo.errors import ConfigError
from proximo.math import loss_terms
from proximo.math.across_devices import is_divided, is_equal
from proximo.networks import ActorCritic
from proximo.ppo.metrics import joined
from proximo.ppo.minibatches import Batch, Minibatch, unroll
from proximo.ppo.state import LearnerState
from proximo.types import Metrics, Scalar

Objective = Callable[[ActorCritic, Minibatch], tuple[Scalar, Metrics]]


def clip(policy: ActorCritic, minibatch: Minibatch) -> tuple[Scalar, Metrics]:
    """The clipped surrogate, negated; with ``dual_clip`` also bounded for negative advantages.

    Source: Schulman et al. 2017, arXiv:1707.06347, equation 7; Ye et al. 2020, arXiv:1912.09729, equation 5.
    """
    surrogate = loss_terms.clipped_surrogate(minibatch.log_ratio, minibatch.advantage, minibatch.clip_eps)
    dual_clip = minibatch.hyperparameters.dual_clip
    if dual_clip is not None:
        surrogate = loss_terms.dual_clipped(surrogate, minibatch.advantage, dual_clip)
    return minibatch.mean(surrogate), {}


def spo(policy: ActorCritic, minibatch: Minibatch) -> tuple[Scalar, Metrics]:
    """The surrogate of simple policy optimization, negated: a penalty on ``(ratio - 1)²`` instead of the clip.

    Source: Xie et al. 2024, arXiv:2401.16025.
    """
    return minibatch.mean(loss_terms.quadratic_surrogate(minibatch.log_ratio, minibatch.advantage, minibatch.clip_eps)), {}


def kl_penalty(policy: ActorCritic, minibatch: Minibatch) -> tuple[Scalar, Metrics]:
    """The surrogate less a penalty, negated: ``-(r A - β KL(old ‖ new))``.

    The divergence of a step is estimated by ``(r - 1) - log r``. For every distribution, the estimate and its gradient
    are unbiased over actions of the policy that acted.

    Source: Schulman et al. 2017, equation 8.
    """
    assert minibatch.kl_coef is not None
    penalized = -minibatch.ratio * minibatch.advantage + minibatch.kl_coef * loss_terms.approximate_kl(minibatch.log_ratio)
    return minibatch.mean(penalized), {}


class WholeLoss(functools.partial[Any]):
    """A custom ``objective`` in the place of the whole loss, the value loss and the entropy bonus included."""


OBJECTIVES: dict[Any, Objective] = {"clip": clip, "spo": spo, "kl_penalty": kl_penalty}
"""The built-in objectives by the word of the setting ``objective``."""


def loss(
    policy: ActorCritic,
    state: LearnerState,
    sequences: Batch,
    num_valid: Scalar,
    key: Key[Array, ""],
    index: Int[Array, ""] | int = 0,
) -> tuple[Scalar, Metrics]:
    """The loss that a gradient step minimizes: ``ppo_loss``, or a custom loss in its place.

    All terms are means over the valid steps of all devices. ``key`` is the random key of ``rpo_alpha``, and
    ``index`` the number of the minibatch in its epoch.

    Returns:
        The loss, and metrics of the gradient step; ``ratio_min`` and ``ratio_max`` are of this device.

    Raises:
        ConfigError: if a custom loss returns anything other than ``(loss, metrics)``, or a metric whose name is taken.
    """
    minibatch = make_minibatch(policy, state, sequences, num_valid, key, index)
    objective: Any = state.static.ppo.objective
    objective, extra = OBJECTIVES.get(objective, objective), state.static.ppo.extra_loss
    if isinstance(objective, WholeLoss):
        total, metrics = call_objective("objective", objective, policy, minibatch)
    else:
        total, metrics = ppo_loss(policy, minibatch, objective)
    metrics = joined(ratio_metrics(minibatch), metrics)
    if callable(extra):
        extra_loss, extra_metrics = call_objective("extra_loss", extra, policy, minibatch)
        total = total + extra_loss
        metrics = joined({**metrics, "extra_loss": extra_loss}, extra_metrics)
    return total, {"loss": total, **metrics}


def ppo_loss(policy: ActorCritic, minibatch: Minibatch, objective: Objective = clip) -> tuple[Scalar, Metrics]:
    """``-L^CLIP + c₁ L^VF - c₂ S``, and metrics.

    Source: Schulman et al. 2017, arXiv:1707.06347, equation 9.
    """
    policy_loss, objective_metrics = call_objective("objective", objective, policy, minibatch)
    value_loss = minibatch.mean(value_loss_per_step(minibatch))
    entropy = minibatch.mean(minibatch.distribution.entropy())
    total = policy_loss + minibatch.hyperparameters.vf_coef * value_loss - minibatch.ent_coef * entropy
    terms: Metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
    return total, joined(terms, objective_metrics)


def call_objective(setting: str, function: Objective, policy: ActorCritic, minibatch: Minibatch) -> tuple[Scalar, Metrics]:
    """Call an objective, and check that it returns one number (broadcasting would sum others) and a
    dictionary of numbers. On several devices, a custom loss or metric that is not the same on all of them
    becomes NaN, because its mean was not taken by ``minibatch.mean``. A loss that is NaN ends the training."""
    returned: Any = function(policy, minibatch)
    is_pair = isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict)
    if not is_pair or not all(map(_is_number, (returned[0], *returned[1].values()))):
        raise ConfigError(
            f"{setting}: the function returns {eqx.tree_pformat(returned)}, expected (loss, metrics): one floating-point number, as "
            "minibatch.mean(x) returns it, and a dictionary of such numbers."
        )
    if is_divided() and function not in OBJECTIVES.values():
        return jax.tree.map(lambda x: jnp.where(is_equal(jnp.asarray(x)), x, jnp.nan), returned)
    return returned


def _is_number(x: Any) -> bool:
    arrays = float | np.floating | np.ndarray | jax.Array
    return isinstance(x, arrays) and jnp.shape(x) == () and jnp.issubdtype(jnp.result_type(x), jnp.floating)


def make_minibatch(
    policy: ActorCritic,
    state: LearnerState,
    sequences: Batch,
    num_valid: Scalar,
    key: Key[Array, ""],
    index: Int[Array, ""] | int,
) -> Minibatch:
    """``sequences`` with what ``policy`` computes for them."""
    _, distribution, value = unroll(policy, sequences)
    h = state.hyperparameters
    if h.rpo_alpha is not None:
        distribution = perturbed(distribution, h.rpo_alpha, key)
    return Minibatch(
        **vars(sequences),
        distribution=distribution,
        log_ratio=jnp.where(sequences.valid, distribution.log_prob(sequences.action) - sequences.log_prob, 0.0),
        new_value=value,
        num_valid=num_valid,
        clip_eps=h.clip_eps(state.progress),
        clip_value_eps=None if h.clip_value_eps is None else h.clip_value_eps(state.progress),
        ent_coef=h.ent_coef(state.progress),
        kl_coef=state.adaptive.kl_coef,
        index=jnp.asarray(index),
        hyperparameters=h,
        settings=state.static.ppo,
    )


def perturbed(distribution: Distribution, alpha: Scalar, key: Key[Array, ""]) -> Gaussian:
    """The Gaussians with their means moved by uniform noise in -α … α. A narrow Gaussian makes its own actions
    improbable under moved means, so the policy stays wide.

    Source: Rahman & Xue 2022, "Robust policy optimization in deep reinforcement learning", arXiv:2212.07536, algorithm 1.
    """
    if not isinstance(distribution, Gaussian):
        raise ConfigError(
            f"rpo_alpha moves the mean of a Gaussian, but the actions of this policy have the distribution {type(distribution).__name__}: "
            "set rpo_alpha to 0."
        )
    noise = jax.random.uniform(key, distribution.mean.shape, distribution.mean.dtype, -1.0, 1.0)
    return dataclasses.replace(distribution, mean=distribution.mean + alpha * noise)


def value_loss_per_step(minibatch: Minibatch) -> Float[Array, "L S"]:
    """The value loss of each step, ``½ (V - target)²``. With ``clip_value_eps``, the larger one of it and the clipped loss.

    ``½ max((V - target)², (V_old + clip(V - V_old, ±ε) - target)²)`` with ``V_old`` by the policy that acted.
    Once V is further than ε from it, moving further does not reduce the loss.
    """
    value, old_value, clip_eps = minibatch.new_value, minibatch.value, minibatch.clip_value_eps
    loss = 0.5 * jnp.square(value - minibatch.target)
    if clip_eps is None:
        return loss
    clipped = old_value + jnp.clip(value - old_value, -clip_eps, clip_eps)
    return jnp.maximum(loss, 0.5 * jnp.square(clipped - minibatch.target))


def ratio_metrics(minibatch: Minibatch) -> Metrics:
    """How far the policy has moved from the one that acted, over valid steps."""
    ratio, valid = minibatch.ratio, minibatch.valid
    return {
        "approx_kl": minibatch.mean(loss_terms.approximate_kl(minibatch.log_ratio)),
        "clip_fraction": minibatch.mean((jnp.abs(ratio - 1.0) > minibatch.clip_eps).astype(ratio.dtype)),
        "ratio_min": jnp.min(ratio, where=valid, initial=jnp.inf),
        "ratio_max": jnp.max(ratio, where=valid, initial=-jnp.inf),
    }
