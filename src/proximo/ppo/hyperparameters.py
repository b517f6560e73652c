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

    Those that may be None are in ``OPTIONAL``: the value 0 switches them off. ``LearnerState.enabled_hyperparameters`` then has None, and
    code that reads them is not compiled.
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
        The hyperparameters as float32 scalars; a schedule has four. Stack several along a leading axis to train with ``jax.vmap`` over them.

    Raises:
        ConfigError: if the function of a schedule is not found, raises, does not return one number, or is an optax schedule that counts
            steps.
    """

    def array(x: float) -> Array:
        return jax.device_put(np.float32(x))  # jnp.asarray would compile a program

    def traced(name: str, value: Any) -> Array | Schedule:
        if is_custom(value):
            return _custom_schedule(name, value)
        if isinstance(value, ScheduleText):
            return NumericSchedule(array(value.initial), array(value.final), array(value.power), array(value.fraction))
        return array(value)

    values: dict[str, Any] = {name: traced(name, operator.attrgetter(leaf.name)(ppo)) for name, leaf in TRACED.items()}
    return Hyperparameters(**values)


def check_enabled(hyperparameters: Hyperparameters, off: frozenset[str]) -> None:
    """Raise ``ConfigError`` if one of the ``OPTIONAL`` hyperparameters that the config switches ``off`` has another value than 0: the update
    has no code that reads it. If all hyperparameters are traced, their values are unknown and not checked."""

    def is_traced(x: Array) -> bool:
        return isinstance(x, Tracer)

    some_known = not all(map(is_traced, jax.tree.leaves(hyperparameters)))
    for name in sorted(off):
        value = getattr(hyperparameters, name)
        values = (value.initial, value.final) if isinstance(value, NumericSchedule) else jax.tree.leaves(value)
        varied = isinstance(value, CustomSchedule) or (some_known and any(map(is_traced, values)))
        if varied or any(np.any(np.asarray(x) != 0) for x in values if not is_traced(x)):
            raise ConfigError(
                f"The hyperparameters {'vary' if varied else 'set'} {name}, but {name} = 0 in the config leaves out the code that reads it: "
                f"give {name} another value in the config, too."
            )


def _custom_schedule(setting: str, value: str | Custom) -> CustomSchedule:
    """The custom function of the progress that ``setting`` is or names."""
    function = resolve(setting, value, ("__call__",))
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a function in C
        parameters = []
    with custom_code_errors(f"The function of {setting}", ConfigError):
        returned: Any = jax.eval_shape(function, jax.ShapeDtypeStruct((), jnp.float32))
    if getattr(returned, "shape", None) != () or not jnp.issubdtype(returned.dtype, jnp.number):
        raise ConfigError(
            f"{setting} = {value}: the function returns {returned}: expected one number for a share of the training, 0 … 1."
        )
    if _counts_steps(function):
        raise ConfigError(
            f"{setting} = {value}: this optax schedule counts steps, and hardly changes between 0 and 1. proximo calls it with the completed "
            "share of the training, 0 … 1: give it one step, as in optax.linear_schedule(1e-3, 0, transition_steps=1)."
        )
    schedule = CustomSchedule(function, any("remaining" in name for name in parameters[:1]))
    _check_range(setting, value, schedule)
    return schedule


def _check_range(setting: str, value: str | Custom, schedule: CustomSchedule) -> None:
    """Raise ``ConfigError`` if the function returns an invalid number at one of five shares of the training. Warn if it grows from 0, which
    is what a function of the remaining share does."""
    low, high = LEAVES[setting].low, LEAVES[setting].high
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    numbers = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        # This may run inside jit.
        with jax.ensure_compile_time_eval(), custom_code_errors(f"The function of {setting}", ConfigError):
            number = float(schedule(jnp.float32(share)))
        if not (math.isfinite(number) and low - ROUNDING <= number <= high + ROUNDING):
            between = f"between {low:g} and {high:g}" if math.isfinite(high) else f"of at least {low:g}"
            received = 1.0 - share if schedule.of_remaining else share
            raise ConfigError(
                f"{setting} = {value}: the function returns {number:g} for {received:g}: expected a finite number {between}."
            )
        numbers.append(number)
    if numbers[0] == 0 and numbers[-1] == max(numbers) > 0:
        given, advice = ("remaining", "") if schedule.of_remaining else ("completed", REMAINING)
        warnings.warn(
            f"{setting} = {value} is 0 at the start of the training and largest at its end. The function receives the {given} share of the "
            f"training.{advice}",
            stacklevel=2,
        )


def _counts_steps(function: Any) -> bool:
    """Whether ``function`` is an optax schedule whose change between 0 and 1 is less than a hundredth of its whole change."""
    if not (getattr(function, "__module__", None) or "").startswith("optax."):
        return False
    counts = (0, 0.25, 0.5, 0.75, 1, *(10**power for power in range(1, 10)))  # a growing schedule may overflow
    with jax.ensure_compile_time_eval():  # this may run inside jit
        first, *later = (float(function(jnp.float32(count))) for count in counts)
    changes = [abs(value - first) for value in later if math.isfinite(value)]
    return max(changes[:4]) < 0.01 * max(changes)
