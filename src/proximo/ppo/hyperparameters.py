"""The traced settings: numbers that may change without a new compilation, and that training can be vmapped over."""

from __future__ import annotations

import inspect
import math
import operator
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from proximo.config import ENTRIES, LEAVES, PPOConfig
from proximo.config.custom import Custom, is_custom, resolve
from proximo.config.schedule_text import ScheduleText
from proximo.custom_code import custom_code_errors
from proximo.errors import ConfigError
from proximo.math.schedules import CustomSchedule, NumericSchedule, Schedule

TRACED = {leaf.entry: leaf for leaf in (*LEAVES.values(), *ENTRIES.values()) if leaf.traced}
"""The traced settings and entries of settings, by the name of their field."""
REMAINING = " If it should receive the remaining share, 1 … 0, call its parameter progress_remaining."
ROUNDING = 1e-7
"""How far a schedule may leave its range."""
OPTIONAL = frozenset(name for name, leaf in TRACED.items() if leaf.zero_is_off)


class Hyperparameters(eqx.Module):
    """The traced settings, as ``make_hyperparameters`` fills them. ``config.schema`` describes each.

    Those that may be None are in ``OPTIONAL``: the value 0 switches them off.
    ``LearnerState.enabled_hyperparameters`` then has None, and code that reads them is not compiled.
    """

    total_steps: Array
    learning_rate: Schedule
    gamma: Array
    gae_lambda: Array
    clip_eps: Schedule
    clip_value_eps: Schedule | None
    ent_coef: Schedule
    vf_coef: Array
    max_grad_norm: Array
    target_kl: Array | None
    dual_clip: Array | None
    kl_target: Array
    desired_kl: Array | None
    critic_learning_rate: Schedule | None
    critic_max_grad_norm: Array | None
    weight_decay: Array


def make_hyperparameters(ppo: PPOConfig) -> Hyperparameters:
    """Convert settings into the arrays that a compiled update reads.

    Args:
        ppo: the settings, for instance ``Config().ppo``.

    Returns:
        The hyperparameters as float32 scalars; a schedule has four. Stack several along a leading axis to train with
        ``jax.vmap`` over them.

    Raises:
        ConfigError: if the function of a schedule is not found, raises, does not return one number, or is an optax schedule that counts steps.
    """
    values = {name: _traced(name, operator.attrgetter(leaf.name)(ppo)) for name, leaf in TRACED.items()}
    return Hyperparameters(**values)


def _traced(name: str, value: Any) -> Any:
    if is_custom(value):
        return _custom_schedule(name, value)
    if isinstance(value, ScheduleText):
        return NumericSchedule(*map(_array, (value.initial, value.final, value.power, value.fraction)))
    return _array(value)


def _array(x: float) -> Array:
    return jax.device_put(np.float32(x))  # jnp.asarray would compile a program


def check_enabled(hyperparameters: Hyperparameters, off: frozenset[str]) -> None:
    """Raise ``ConfigError`` if a hyperparameter that the config switches ``off`` is not 0: no code reads it.
    If all hyperparameters are traced, their values are unknown and not checked."""
    if all(isinstance(x, Tracer) for x in jax.tree.leaves(hyperparameters)):
        return
    for name in sorted(off):
        value = getattr(hyperparameters, name)
        numbers = (value.initial, value.final) if isinstance(value, NumericSchedule) else jax.tree.leaves(value)
        if isinstance(value, CustomSchedule) or any(isinstance(x, Tracer) or np.any(np.asarray(x) != 0) for x in numbers):
            raise ConfigError(
                f"The hyperparameters set {name}, but {name} = 0 in the config leaves out the code that reads it: give {name} another "
                "value in the config, too."
            )


def _custom_schedule(setting: str, value: str | Custom) -> CustomSchedule:
    """The custom function of the progress for ``setting``, which ``value`` is or names. Warns if it grows from 0:
    it was probably written for the remaining share."""
    function, leaf = resolve(setting, value, ("__call__",)), LEAVES[setting]
    is_of_optax = (getattr(function, "__module__", None) or "").startswith("optax.")
    # This may run inside jit.
    with jax.ensure_compile_time_eval(), custom_code_errors(f"The function of {setting}", ConfigError):
        schedule = CustomSchedule(function, any("remaining" in name for name in [*inspect.signature(function).parameters][:1]))
        numbers = [float(schedule(jnp.float32(share))) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
        later = [float(schedule(jnp.float32(10.0**power))) for power in range(1, 10)] if is_of_optax else []
    low, high = (end if bound is None else bound for bound, end in ((leaf.low, -math.inf), (leaf.high, math.inf)))
    if not all(math.isfinite(x) and low - ROUNDING <= x <= high + ROUNDING for x in numbers):
        expected = f"between {low:g} and {high:g}" if math.isfinite(high) else f"of at least {low:g}"
        raise ConfigError(
            f"{setting} = {value}: the function returns {', '.join(f'{x:g}' for x in numbers)} from the start to the end of the training: "
            f"expected finite numbers {expected}."
        )
    changes = [abs(x - numbers[0]) for x in (*numbers, *later) if math.isfinite(x)]  # a growing schedule may overflow
    if max(changes[:5]) < 0.01 * max(changes):
        raise ConfigError(
            f"{setting} = {value}: this optax schedule counts steps, and hardly changes between 0 and 1. proximo calls it with the completed "
            "share of the training, 0 … 1: give it one step, as in optax.linear_schedule(1e-3, 0, transition_steps=1)."
        )
    if numbers[0] == 0 and numbers[-1] == max(numbers) > 0:
        given, advice = ("remaining", "") if schedule.of_remaining else ("completed", REMAINING)
        growing = f"{setting} = {value} is 0 at the start of the training and largest at its end. The function receives the {given} share"
        warnings.warn(f"{growing} of the training.{advice}", stacklevel=2)
    return schedule
