"""Changes of a training state as a whole."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from proximo.config import Config
from proximo.ppo import make_hyperparameters
from proximo.types import TrainState


def copy_of(state: TrainState) -> TrainState:
    """A copy of ``state``, which stays when a backend uses up ``state``."""
    return jax.tree.map(jnp.copy, state)


def with_total_steps(state: TrainState, config: Config) -> TrainState:
    """``state`` with the ``total_steps`` of ``config``, at which its schedules end."""
    total = make_hyperparameters(config.ppo).total_steps
    hyperparameters = dataclasses.replace(state.learner.hyperparameters, total_steps=total)
    return dataclasses.replace(state, learner=dataclasses.replace(state.learner, hyperparameters=hyperparameters))
