"""The pieces of a training as pure functions, to be jitted, vmapped and scanned by the user."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Key

from proximo.collect.jax_collector import JaxCollector
from proximo.collect.learning import check_policy, kept, learn
from proximo.config import Config
from proximo.envs.protocol import Environment
from proximo.errors import ConfigError
from proximo.types import Hyperparameters, Metrics, Rollout, TrainState


class Functions(NamedTuple):
    """The three functions that ``make_functions`` returns and explains."""

    init: Callable[..., TrainState]
    """``init(key, hyperparameters=None) -> state``"""
    collect: Callable[[TrainState], tuple[TrainState, Rollout, Metrics]]
    """``collect(state) -> (state, rollout, metrics)``"""
    update: Callable[[TrainState, Rollout], tuple[TrainState, Metrics]]
    """``update(state, rollout) -> (state, metrics)``"""


def make_functions(config: Config, env: Environment, seeds_axis: bool = False) -> Functions:
    """The parts of a training on a JAX environment, as pure functions.

        config = proximo.make_config("gymnax:CartPole-v1")
        init, collect, update = proximo.make_functions(config, proximo.make_env(config.env.id))
        state = init(jax.random.key(0))
        state, rollout, metrics = jax.jit(collect)(state)
        state, metrics = jax.jit(update)(state, rollout)

    - ``init(key, hyperparameters=None)`` returns the state before the first step. Hyperparameters
      (``proximo.ppo.make_hyperparameters``) are traced, so you can vmap over them.
    - ``collect(state)`` takes ``num_steps`` steps of all environments with the policy of ``state``. It returns the next state, the
      rollout (``proximo.types.Rollout``) and metrics ``rollout/…`` of the episodes that ended in it.
    - ``update(state, rollout)`` makes one update. It returns the next state and metrics ``train/…``. If NaN or infinity occurs,
      ``state.healthy`` becomes False, and this and all later updates leave the learner unchanged.

    You may change a rollout between ``collect`` and ``update``, for example add to its ``reward``.

    Args:
        config: the settings.
        env: a JAX environment.
        seeds_axis: whether the functions run under ``jax.vmap(..., axis_name="seeds")``. Environments are then reset for all seeds
            together.

    Returns:
        The functions, a named tuple ``(init, collect, update)``.

    Raises:
        EnvError: ``env`` breaks the protocol, or is a Gymnasium environment.
    """
    collector = JaxCollector(config, env, seeds_axis)
    check_policy(env, config)

    def collect(state: TrainState) -> tuple[TrainState, Rollout, Metrics]:
        check_types("collect(state)", state=(state, TrainState))
        with jax.default_matmul_precision(config.run.matmul_precision):
            collected, rollout, metrics = collector.collect(state.learner.policy, state.collector)
        return dataclasses.replace(state, collector=collected), rollout, metrics

    def update(state: TrainState, rollout: Rollout) -> tuple[TrainState, Metrics]:
        check_types("update(state, rollout)", state=(state, TrainState), rollout=(rollout, Rollout))
        with jax.default_matmul_precision(config.run.matmul_precision):
            learner, healthy, metrics = learn(state.learner, state.healthy, rollout, seeds_axis)
        return TrainState(kept(healthy, learner, state.learner), state.collector, healthy), metrics

    def init(key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> TrainState:
        return collector.init(key, hyperparameters)

    return Functions(init, collect, update)


def check_types(call: str, **arguments: tuple[Any, type]) -> None:
    """Raise ``ConfigError`` for an argument, by its name, of another type than the one beside it."""
    for name, (given, expected) in arguments.items():
        if not isinstance(given, expected):
            raise ConfigError(f"{call}: {name} is {type(given).__name__}, expected {expected.__name__}.")
