"""How a hyperparameter moves over the training."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from proximo.types import Schedule


def scheduled(schedule: Schedule, progress: Float[Array, ""]) -> Float[Array, ""]:
    """The value at ``progress`` in 0 … 1: ``final + (initial - final) (1 - min(progress / fraction, 1)) ** power``.

    One formula for the constant (``initial == final``), the linear (``power == 1``) and the polynomial schedule.
    """
    remaining = 1.0 - jnp.clip(progress / schedule.fraction, 0.0, 1.0)
    return schedule.final + (schedule.initial - schedule.final) * remaining**schedule.power
