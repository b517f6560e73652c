"""The pieces of a training as pure functions, to be jitted, vmapped and scanned by the user."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Key

from proximo.config import Config
from proximo.drivers.device import DeviceDriver
from proximo.drivers.learning import hold_policy, kept, learn
from proximo.envs import HostEnvironment, JaxEnvironment
from proximo.errors import ConfigError
from proximo.types import Hyperparameters, Metrics, Rollout, TrainState


class Functions(NamedTuple):
    """``init(key, hyperparameters=None) -> state``, ``collect(state) -> (state, rollout, metrics)``, ``update(state, rollout) -> (state,
    metrics)``; see ``make_functions``."""

    init: Callable[..., TrainState]
    collect: Callable[[TrainState], tuple[TrainState, Rollout, Metrics]]
    update: Callable[[TrainState, Rollout], tuple[TrainState, Metrics]]


def make_functions(config: Config, env: JaxEnvironment | HostEnvironment, seeds_axis: bool = False) -> Functions:
    """``init, collect, update`` for ``config`` on ``env``.

    ``init(key, hyperparameters=None)``: the state before the first step; hyperparameters (``proximo.ppo.make_hyperparameters``) are traced,
    so that they can be vmapped over. ``collect(state)``: ``num_steps`` steps of all environments by the policy of ``state``; the rollout
    (``proximo.types.Rollout``), and metrics ``rollout/…`` of the episodes that ended in it. ``update(state, rollout)``: one update of the
    learner, and metrics ``train/…``; from the first NaN or infinity on the learner stays as it was (``state.healthy``). A rollout may be changed
    between the two, as by adding to its ``reward``. With ``seeds_axis`` they run under ``jax.vmap(..., axis_name="seeds")`` only, where
    environments are reset for all seeds at once. Raises ``EnvError`` where ``env`` breaks the protocol, or is one of the host.
    """
    driver = DeviceDriver(config, env, seeds_axis)
    hold_policy(env, config)

    def collect(state: TrainState) -> tuple[TrainState, Rollout, Metrics]:
        hold_types("collect(state)", state=(state, TrainState))
        with jax.default_matmul_precision(config.run.matmul_precision):
            collector, rollout, metrics = driver.collect(state.learner.policy, state.collector)
        return dataclasses.replace(state, collector=collector), rollout, metrics

    def update(state: TrainState, rollout: Rollout) -> tuple[TrainState, Metrics]:
        hold_types("update(state, rollout)", state=(state, TrainState), rollout=(rollout, Rollout))
        with jax.default_matmul_precision(config.run.matmul_precision):
            learner, healthy, metrics = learn(state.learner, state.healthy, rollout, seeds_axis)
        return TrainState(kept(healthy, learner, state.learner), state.collector, healthy), metrics

    def init(key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> TrainState:
        return driver.init(key, hyperparameters)

    return Functions(init, collect, update)


def hold_types(call: str, **arguments: tuple[Any, type]) -> None:
    """Raise ``ConfigError`` for an argument, by its name, of another type than the one beside it."""
    for name, (given, expected) in arguments.items():
        if not isinstance(given, expected):
            raise ConfigError(f"{call}: {name} is {type(given).__name__}, expected {expected.__name__}.")
