"""What an update makes small: functions ``(policy, minibatch) -> (loss, metrics)``, proximo's and the user's alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from proximo.distributions import Distribution
from proximo.errors import ConfigError
from proximo.math import losses
from proximo.networks import ActorCritic
from proximo.own_code import Own, is_own, resolve
from proximo.ppo.batch import Batch
from proximo.types import Metrics
from proximo.users_code import users_code


class Minibatch(Batch):
    """The rows of a gradient step, and what the policy that learns says of them: ``L S`` each."""

    distribution: Distribution = eqx.field(kw_only=True)
    """Of the actions, by the parameters of this step."""
    log_ratio: Float[Array, "L S"] = eqx.field(kw_only=True)
    """``log π(a|s) - log π_old(a|s)``; 0 in rows that are not valid."""
    new_value: Float[Array, "L S"] = eqx.field(kw_only=True)
    """By the parameters of this step; ``value`` is that of the policy that acted."""
    clip_eps: Float[Array, ""] = eqx.field(kw_only=True)
    """ε of this moment."""
    dual_clip: Float[Array, ""] | None = eqx.field(kw_only=True)
    """The ratio beyond which a negative advantage weighs no more; None: off."""
    kl_coef: Float[Array, ""] | None = eqx.field(kw_only=True)
    """β of this moment; None where no KL penalty is asked for."""

    @property
    def ratio(self) -> Float[Array, "L S"]:
        """``π(a|s) / π_old(a|s)``."""
        return losses.probability_ratio(self.log_ratio)

    def mean(self, x: Float[Array, "L S"]) -> Float[Array, ""]:
        """Over the valid rows."""
        return losses.masked_mean(x, self.valid)


Objective = Callable[[ActorCritic, Minibatch], tuple[Float[Array, ""], Metrics]]


def clip(policy: ActorCritic, minibatch: Minibatch) -> tuple[Float[Array, ""], Metrics]:
    """The clipped surrogate, negated (equation 7), with ``dual_clip`` bounded for negative advantages (Ye et al. 2020, arXiv:1912.09729,
    equation 5)."""
    rows = losses.clipped_surrogate(minibatch.log_ratio, minibatch.advantage, minibatch.clip_eps)
    if minibatch.dual_clip is not None:
        rows = losses.dual_clipped(rows, minibatch.advantage, minibatch.dual_clip)
    return minibatch.mean(rows), {}


def kl_penalty(policy: ActorCritic, minibatch: Minibatch) -> tuple[Float[Array, ""], Metrics]:
    """``-(r A - β KL(old ‖ new))`` (equation 8). The divergence is ``(r - 1) - log r``, whose mean and whose gradient's mean are those of the
    divergence itself, for every family of distributions."""
    assert minibatch.kl_coef is not None
    rows = -minibatch.ratio * minibatch.advantage + minibatch.kl_coef * losses.approximate_kl(minibatch.log_ratio)
    return minibatch.mean(rows), {}


OBJECTIVES: dict[str, Objective] = {"clip": clip, "kl_penalty": kl_penalty}


def function_of(setting: str, value: str | Own) -> Objective:
    """The function that ``value`` of ``setting`` names or is. Raises ``ConfigError``."""
    if not is_own(value):
        return OBJECTIVES[str(value)]
    function = resolve(setting, value, ("__call__",))
    try:
        hash(function)
    except TypeError as error:
        raise ConfigError(f"{setting} = {value}: {error}, and it has to be: give a function.") from error
    if inspect.isclass(function) or not callable(function):
        raise ConfigError(f"{setting} = {value}: expected a function (policy, minibatch) -> (loss, metrics).")
    return cast("Objective", function)


def evaluated(setting: str, function: Objective, policy: ActorCritic, minibatch: Minibatch) -> tuple[Float[Array, ""], Metrics]:
    """``function`` of its arguments. Raises ``ConfigError`` for anything but one number and a dictionary of numbers: a loss for each row would be
    added up by broadcasting."""
    with users_code(f"The function of {setting}", ConfigError):
        given: Any = function(policy, minibatch)
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[1], dict):
        raise ConfigError(
            f"{setting}: the function gives {_described(given)}, expected (loss, metrics), the metrics a dictionary."
        )
    for name, number in (("the loss", given[0]), *given[1].items()):
        if not isinstance(name, str) or not _is_number(number):
            raise ConfigError(
                f"{setting}: {name} is {_described(number)}, expected one floating-point number, as minibatch.mean(rows)."
            )
    return given


def _is_number(x: Any) -> bool:
    arrays = float | np.floating | np.ndarray | jax.Array
    return isinstance(x, arrays) and jnp.shape(x) == () and jnp.issubdtype(jnp.result_type(x), jnp.floating)


def _described(x: Any) -> str:
    if isinstance(x, jax.Array):
        return f"an array {x.shape} {x.dtype}"
    return (
        f"({', '.join(map(_described, x))})"
        if isinstance(x, tuple)
        else repr(x)
        if isinstance(x, int | float)
        else type(x).__name__
    )
