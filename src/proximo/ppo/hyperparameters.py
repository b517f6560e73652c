"""The traced settings: numbers that may change without a new compilation, and that training can be vmapped over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from proximo.config import LEAVES, PPOConfig
from proximo.config.schedule_text import ScheduleText
from proximo.types import Schedule

TRACED = tuple(name for name, leaf in LEAVES.items() if leaf.traced)
OPTIONAL = frozenset(name for name in TRACED if LEAVES[name].zero_is_off)


class Hyperparameters(eqx.Module):
    """The traced settings, such as ``gamma``, ``clip_eps`` or ``learning_rate``; ``TRACED`` has all names.

    Each is a float32 array or a ``Schedule``. ``proximo.ppo.make_hyperparameters`` fills them. Those in ``OPTIONAL`` are switched off by
    the value 0: ``LearnerState.enabled_hyperparameters`` then has None, and code that reads them is not compiled.
    """

    __annotations__ = dict.fromkeys(TRACED, Any)
    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def make_hyperparameters(ppo: PPOConfig) -> Hyperparameters:
    """Convert settings into the arrays that a compiled update reads.

    Args:
        ppo: the settings, for instance ``Config().ppo``.

    Returns:
        The hyperparameters as float32 scalars; a schedule has four. Stack several along a leading axis to train with ``jax.vmap`` over them.
    """

    def array(x: float) -> Array:
        return jnp.asarray(x, jnp.float32)

    def traced(value: float | ScheduleText) -> Array | Schedule:
        if isinstance(value, ScheduleText):
            return Schedule(array(value.initial), array(value.final), array(value.power), array(value.fraction))
        return array(value)

    values: dict[str, Any] = {name: traced(getattr(ppo, name)) for name in TRACED}
    return Hyperparameters(**values)
