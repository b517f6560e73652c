"""Schedules: how a hyperparameter changes with the progress of the training."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from proximo.config.schedule_text import EXPONENTIAL
from proximo.types import Schedule, ScheduleFunction


def scheduled(schedule: Schedule | ScheduleFunction, progress: Float[Array, ""]) -> Float[Array, ""]:
    """The current value of a schedule, at the completed share ``progress`` of the training (0 … 1).

    With ``share = min(progress / fraction, 1)`` it is ``final + (initial - final) (1 - share) ** power``: constant if ``initial`` equals
    ``final``, linear if ``power`` is 1. A power of 0 marks the exponential schedule ``initial ** (1 - share) final ** share``. Every
    schedule is thus four numbers, which can be vmapped over. A custom function of the progress is called.
    """
    if isinstance(schedule, ScheduleFunction):
        return jnp.asarray(schedule(progress), jnp.float32)
    remaining = 1.0 - jnp.clip(progress / schedule.fraction, 0.0, 1.0)
    polynomial = schedule.final + (schedule.initial - schedule.final) * remaining**schedule.power
    exponential = schedule.initial**remaining * schedule.final ** (1.0 - remaining)
    return jnp.where(schedule.power == EXPONENTIAL, exponential, polynomial)
