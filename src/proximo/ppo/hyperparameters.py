"""The settings that the learner reads. Traced settings may change, or be vmapped over, without a new compilation. The others
are constants of the compiled programs."""

from __future__ import annotations

import dataclasses
import inspect
import math
import operator
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from proximo.config import BY_NAME, LEAVES, Config, PPOConfig
from proximo.config.coercion import Leaf, ScheduleText, expected_range
from proximo.config.custom import OPTIMIZERS, Custom, is_custom, is_transformation, resolve
from proximo.custom_code import custom_code_errors
from proximo.errors import ConfigError
from proximo.math.schedules import CustomSchedule, NumericSchedule, Schedule

TRACED = {leaf.entry: leaf for leaf in BY_NAME.values() if leaf.traced}
"""The traced settings and entries of settings, by the name of their field."""
REMAINING = " If it should receive the remaining share, 1 … 0, call its parameter progress_remaining."


class Hyperparameters(eqx.Module):
    """The traced settings, as ``make_hyperparameters`` fills them. ``config.schema`` describes each.

    The value 0 switches off those that may be None. Code that reads them is then not compiled.
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
    rpo_alpha: Array | None
    critic_learning_rate: Schedule | None
    critic_max_grad_norm: Array | None
    weight_decay: Array


@dataclasses.dataclass(frozen=True)
class StaticSettings:
    """The settings that are constants of the compiled programs.

    Attributes:
        ppo: the settings that are not traced. Custom code replaces its name, and ``sequence_length`` is a number of steps
            (1 without a memory). A traced setting that is on is None here; its value is in ``Hyperparameters``.
        batch_size: environment steps of an update, over all devices.
        diagnose_every: updates between two diagnoses of the memory; 0: never.
    """

    ppo: PPOConfig
    batch_size: int
    diagnose_every: int

    @classmethod
    def of(cls, config: Config) -> StaticSettings:
        """The static settings of ``config``. Raises ``ConfigError`` for custom code of the wrong kind."""
        static = dataclasses.replace(config, ppo=dataclasses.replace(config.ppo, sequence_length=config.sequence_length))
        for leaf in BY_NAME.values():
            value = leaf.value_in(config)
            if leaf.traced and not leaf.is_off(value):
                static = leaf.with_value(static, None)
            elif leaf.group == "ppo" and is_custom(value):
                static = leaf.with_value(static, _function(leaf.name, value))
        return cls(static.ppo, config.batch_size, config.diagnose_every)


def _function(setting: str, value: str | Custom) -> Any:
    """The custom loss or optimizer that ``setting`` is or names."""
    found, is_optimizer = resolve(setting, value, ("__call__",)), setting in OPTIMIZERS
    is_function = callable(found) and not inspect.isclass(found)
    try:
        hash(found)  # a dataclass may have a field that cannot be hashed
    except TypeError:
        is_function = False
    if is_function or (is_optimizer and is_transformation(found)):
        return found
    what = "a function (policy, minibatch) -> (loss, metrics) that can be hashed"
    if is_optimizer:
        what = "an optax transformation, such as optax.adam(3e-4), or a function that makes one from the learning rate, such as optax.sgd"
    raise ConfigError(f"{setting} = {value}: expected {what}.")


def make_hyperparameters(ppo: PPOConfig) -> Hyperparameters:
    """Convert settings into the arrays that a compiled update reads.

    Args:
        ppo: the settings, for instance ``Config().ppo``.

    Returns:
        The hyperparameters as float32 scalars; a schedule has four, and one that is off is None. Stack several along
        a leading axis to train with ``jax.vmap`` over them.

    Raises:
        ConfigError: if the function of a schedule is not found, raises, does not return one number, or is an optax schedule that counts steps.
    """
    return Hyperparameters(**{name: _traced(leaf, operator.attrgetter(leaf.name)(ppo)) for name, leaf in TRACED.items()})


def _traced(leaf: Leaf, value: Any) -> Any:
    if leaf.is_off(value):
        return None
    if is_custom(value):
        return _custom_schedule(leaf.name, value)
    if isinstance(value, ScheduleText):
        return NumericSchedule(*map(_array, (value.initial, value.final, value.power, value.fraction)))
    return _array(value)


def _array(x: float) -> Array:
    return jax.device_put(np.float32(x))  # jnp.asarray would compile a program


def _custom_schedule(setting: str, value: str | Custom) -> CustomSchedule:
    """The custom function of the progress for ``setting``, which ``value`` is or names. Warns if it grows from 0:
    it was probably written for the remaining share."""
    function = resolve(setting, value, ("__call__",))
    is_of_optax = (getattr(function, "__module__", None) or "").startswith("optax.")
    # This may run inside jit.
    with jax.ensure_compile_time_eval(), custom_code_errors(f"The function of {setting}", ConfigError):
        schedule = CustomSchedule(function, any("remaining" in name for name in [*inspect.signature(function).parameters][:1]))
        numbers = [float(schedule(jnp.float32(share))) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
        later = [float(schedule(jnp.float32(10.0**power))) for power in range(1, 10)] if is_of_optax else []
    # Rounding may make a number negative.
    if problem := next(filter(None, (expected_range(LEAVES[setting], round(x, 7)) for x in numbers)), ""):
        raise ConfigError(
            f"{setting} = {value}: the function returns {', '.join(f'{x:g}' for x in numbers)} from the start to the end of the training: "
            f"expected {problem}."
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
