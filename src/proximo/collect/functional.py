"""A training on a JAX environment, and its pieces, as pure functions, to be jitted, vmapped and scanned."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh
from jaxtyping import Array, Int32, Key

from proximo.collect import jax_vector
from proximo.collect.devices import check_divisible, divided, placed
from proximo.collect.jax_collector import JaxCollector
from proximo.collect.learning import check_policy, inspect, kept, learn
from proximo.config import Config
from proximo.envs.level_seeds import with_levels
from proximo.envs.protocol import Environment
from proximo.errors import ConfigError
from proximo.math.across_devices import ENVS_AXIS
from proximo.ppo.hyperparameters import Hyperparameters
from proximo.types import Metrics, Rollout, TrainState


class JaxTrainer:
    """Collects and learns on a JAX environment. Its methods are pure functions of the training state, which you can jit and vmap.

    Args:
        collector: collects the rollouts. With its ``seeds_axis`` the methods run under ``jax.vmap(..., axis_name="seeds")``.
    """

    def __init__(self, collector: JaxCollector):
        self.collector = collector
        self._precision = functools.partial(jax.default_matmul_precision, collector.config.run.matmul_precision)

    def collect(self, state: TrainState) -> tuple[TrainState, Rollout, Metrics]:
        """The first half of ``update``: the state after the steps of a rollout, the rollout, and metrics ``rollout/…``."""
        with self._precision():
            collected, rollout, metrics = self.collector.collect(state.learner.policy, state.collector)
        return dataclasses.replace(state, collector=collected), rollout, metrics

    def learn(self, state: TrainState, rollout: Rollout) -> tuple[TrainState, Metrics]:
        """The second half of ``update``: the state after learning from ``rollout``, and metrics ``train/…``."""
        with self._precision():
            learner, healthy, metrics = learn(state.learner, state.healthy, rollout, self.collector.seeds_axis)
        return TrainState(learner, state.collector, healthy), metrics

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Collect a rollout and learn from it. After the first NaN or infinity, the state no longer changes.

        Args:
            state: the training state.

        Returns:
            The next state, and metrics ``train/…`` and ``rollout/…``.
        """
        collected, rollout, episodes = self.collect(state)
        learned, metrics = self.learn(collected, rollout)
        collector = kept(learned.healthy, collected.collector, state.collector)
        return dataclasses.replace(learned, collector=collector), {**metrics, **episodes}

    def advance(self, state: TrainState, num_updates: Int32[Array, ""], capacity: int) -> tuple[TrainState, Metrics]:
        """Run several updates in one call.

        ``num_updates`` is traced: one program serves every number, so the division of a run into calls does
        not change its bits (docs/decisions/0004-traced-trip-count.md).

        Args:
            state: the training state.
            num_updates: number of updates, at most ``capacity``.
            capacity: length of the arrays of metrics.

        Returns:
            The next state, and metrics: arrays of shape ``(capacity,)``, of which the first ``num_updates`` entries are filled.
        """
        update = jax.jit(self.update, inline=True)  # traced once, for the shapes and for the loop
        shapes = jax.eval_shape(lambda s: update(s)[1], state)
        buffers = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), shapes)

        def body(i: Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, buffers = carry
            state, metrics = update(state)
            return state, jax.tree.map(lambda buffer, x: buffer.at[i].set(x), buffers, metrics)

        return jax.lax.fori_loop(0, num_updates, body, (state, buffers))

    def inspect(self, before: TrainState, after: TrainState) -> dict[str, Any]:
        """The quantities of the update from ``before`` to ``after`` for histograms. Its rollout is collected once more."""
        with self._precision():
            _, rollout, episodes = self.collector.collect_episodes(before.learner.policy, before.collector)
            learned = inspect(before.learner, after.learner.policy, rollout)
        return learned | {name: x for name, x in episodes.items() if name != "success"}


class Functions(NamedTuple):
    """The three functions that ``make_functions`` returns and explains."""

    init: Callable[..., TrainState]
    """``init(key, hyperparameters=None) -> state``"""
    collect: Callable[[TrainState], tuple[TrainState, Rollout, Metrics]]
    """``collect(state) -> (state, rollout, metrics)``"""
    update: Callable[[TrainState, Rollout], tuple[TrainState, Metrics]]
    """``update(state, rollout) -> (state, metrics)``"""


def make_functions(config: Config, env: Environment, seeds_axis: bool = False, mesh: Mesh | None = None) -> Functions:
    """The parts of a training on a JAX environment, as pure functions.

        config = proximo.make_config("gymnax:CartPole-v1")
        init, collect, update = proximo.make_functions(config, proximo.make_env(config.env.id))
        state = init(jax.random.key(0))
        state, rollout, metrics = jax.jit(collect)(state)
        state, metrics = jax.jit(update)(state, rollout)

    - ``init(key, hyperparameters=None)`` returns the state before the first step. Hyperparameters
      (``proximo.ppo.make_hyperparameters``) are traced, so you can vmap over them. Those that are 0, and so off, in ``config`` must stay 0.
    - ``collect(state)`` takes ``num_steps`` steps of all environments with the policy of ``state``. It returns the next state, the
      rollout (``proximo.types.Rollout``) and metrics ``rollout/…`` of the episodes that ended in it.
    - ``update(state, rollout)`` makes one update. It returns the next state and metrics ``train/…``. If NaN or infinity occurs,
      ``state.healthy`` becomes False, and this and all later updates leave the learner unchanged.

    You may change a rollout between ``collect`` and ``update``, for example add to its ``reward``.

    Args:
        config: the settings. Those that make or wrap an environment (``env_settings``, ``frame_stack``, …) are ignored, because ``env`` already exists.
        env: a JAX environment. With the setting ``levels``, its resets draw from them.
        seeds_axis: whether the functions run under ``jax.vmap(..., axis_name="seeds")``. Environments are then reset for all seeds
            together.
        mesh: several devices, with an axis ``"envs"`` over which environments are divided:
            ``jax.make_mesh((4,), ("envs",), axis_types=(jax.sharding.AxisType.Auto,))``. None: one device.

    Returns:
        The functions, a named tuple ``(init, collect, update)``.

    Raises:
        ConfigError: environments or minibatches cannot be divided equally over ``mesh``.
        EnvError: ``env`` breaks the protocol, or is a Gymnasium environment.
    """
    trainer = _checked_trainer(config, env, seeds_axis, mesh)

    def init(key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> TrainState:
        return placed(trainer.collector.init(key, hyperparameters), mesh)

    return Functions(init, divided(trainer.collect, mesh), divided(trainer.learn, mesh))


def make_train(
    config: Config, env: Environment, seeds_axis: bool = False, mesh: Mesh | None = None
) -> Callable[..., tuple[TrainState, Metrics]]:
    """Make a whole training one pure function. You can jit it, and vmap it over keys and hyperparameters.

        config = proximo.make_config("gymnax:CartPole-v1", {"total_steps": 20_000})
        train = proximo.make_train(config, proximo.make_env(config.env.id))
        state, metrics = jax.jit(train)(jax.random.key(0))

    Args:
        config: the settings, read as in ``make_functions``.
        env: a JAX environment.
        seeds_axis: whether it runs under ``jax.vmap(..., axis_name="seeds")``. Environments are then reset for all seeds together.
        mesh: as in ``make_functions``.

    Returns:
        ``train(key, hyperparameters=None) -> (TrainState, metrics)``, with hyperparameters as in ``make_functions``. Metrics have one
        entry for each update. The result equals that of ``proximo train`` up to rounding, because XLA may compile a larger program
        differently.

    Raises:
        ConfigError: as in ``make_functions``.
        EnvError: ``env`` breaks the protocol, or is a Gymnasium environment.
    """
    trainer, total = _checked_trainer(config, env, seeds_axis, mesh), config.total_updates
    advance = divided(lambda state: trainer.advance(state, jnp.int32(total), total), mesh)

    def train(key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> tuple[TrainState, Metrics]:
        return advance(placed(trainer.collector.init(key, hyperparameters), mesh))

    return train


def _checked_trainer(config: Config, env: Environment, seeds_axis: bool, mesh: Mesh | None) -> JaxTrainer:
    if mesh is not None:
        if ENVS_AXIS not in mesh.axis_names or set(mesh.axis_types) != {AxisType.Auto}:
            raise ConfigError(
                f"mesh = {mesh}: expected an axis {ENVS_AXIS!r} and automatic axes, as jax.make_mesh((4,), ({ENVS_AXIS!r},), "
                "axis_types=(jax.sharding.AxisType.Auto,)) makes them."
            )
        check_divisible(config, mesh.shape[ENVS_AXIS])
    if config.env.levels:
        env = with_levels(jax_vector.check_env(env, config.env.id), config.env.levels)
    collector = JaxCollector(config, env, seeds_axis)
    check_policy(collector.env, config)
    return JaxTrainer(collector)
