"""How a hyperparameter moves over the training."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from proximo.schedule_text import EXPONENTIAL
from proximo.types import Schedule


def scheduled(schedule: Schedule, progress: Float[Array, ""]) -> Float[Array, ""]:
    """The value at ``progress`` in 0 … 1: ``final + (initial - final) (1 - share) ** power`` with ``share = min(progress / fraction, 1)``.

    One formula for the constant (``initial == final``), the linear (``power == 1``) and the polynomial schedule; a power of 0 stands for the
    exponential one, ``initial ** (1 - share) final ** share``, so that the form of a schedule stays four numbers that can be vmapped over.
    """
    remaining = 1.0 - jnp.clip(progress / schedule.fraction, 0.0, 1.0)
    polynomial = schedule.final + (schedule.initial - schedule.final) * remaining**schedule.power
    exponential = schedule.initial**remaining * schedule.final ** (1.0 - remaining)
    return jnp.where(schedule.power == EXPONENTIAL, exponential, polynomial)
