"""Schedules: hyperparameters that change with the progress of the training.

A schedule is called with the completed share of the training, 0 … 1, and returns the current value.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from proximo.config.coercion import EXPONENTIAL
from proximo.types import Scalar

Numbers = Float[Array, "..."]


class NumericSchedule(eqx.Module):
    """A constant, polynomial or exponential schedule, as a setting such as ``linear(1e-3, 0)`` gives it. Its
    numbers are traced.

    With ``share = min(progress / fraction, 1)`` it is ``final + (initial - final) (1 - share) ** power``:
    constant if ``initial`` equals ``final``, linear if ``power`` is 1. A power of 0 marks the exponential
    schedule ``initial ** (1 - share) final ** share``.

    Attributes:
        initial: value at the start.
        final: value at the end.
        power: exponent of a polynomial schedule; 1: linear; 0: the schedule is exponential.
        fraction: share of the training after which ``final`` is reached, above 0; above 1, the training ends before.
    """

    initial: Numbers
    final: Numbers
    power: Numbers
    fraction: Numbers

    def __call__(self, progress: Scalar) -> Scalar:
        remaining = 1.0 - jnp.clip(progress / self.fraction, 0.0, 1.0)
        polynomial = self.final + (self.initial - self.final) * remaining**self.power
        exponential = self.initial**remaining * self.final ** (1.0 - remaining)
        return jnp.where(self.power == EXPONENTIAL, exponential, polynomial)


class CustomSchedule(eqx.Module):
    """A schedule that a custom function computes.

    Attributes:
        function: receives the completed share of the training, or the remaining share 1 … 0 if ``of_remaining``. Returns one number.
    """

    function: Callable[[Scalar], Any] = eqx.field(static=True)
    of_remaining: bool = eqx.field(static=True, default=False)

    def __call__(self, progress: Scalar) -> Scalar:
        return jnp.asarray(self.function(1.0 - progress if self.of_remaining else progress), jnp.float32)


Schedule = NumericSchedule | CustomSchedule
