"""Objectives: functions ``(policy, minibatch) -> (loss, metrics)`` that an update minimizes, built in or custom."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from proximo.errors import ConfigError
from proximo.math import loss_terms
from proximo.math.across_devices import is_divided, is_equal
from proximo.networks import ActorCritic
from proximo.ppo.minibatches import Minibatch
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


def kl_penalty(policy: ActorCritic, minibatch: Minibatch) -> tuple[Scalar, Metrics]:
    """The surrogate less a penalty, negated: ``-(r A - β KL(old ‖ new))``.

    The divergence of a step is ``(r - 1) - log r``. Its mean, and the mean of its gradient, are exact for every family.

    Source: Schulman et al. 2017, equation 8.
    """
    assert minibatch.kl_coef is not None
    penalized = -minibatch.ratio * minibatch.advantage + minibatch.kl_coef * loss_terms.approximate_kl(minibatch.log_ratio)
    return minibatch.mean(penalized), {}


class WholeLoss(functools.partial[Any]):
    """A custom ``objective`` in the place of the whole loss, the value loss and the entropy bonus included."""


OBJECTIVES: dict[Any, Objective] = {"clip": clip, "kl_penalty": kl_penalty}
"""The built-in objectives by the word of the setting ``objective``."""


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
