"""Trains on JAX environments: collecting and learning are one pure function."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from proximo.collect.jax_collector import JaxCollector
from proximo.collect.learning import kept, learn
from proximo.ppo import diagnostics
from proximo.types import Metrics, Rollout, TrainState


class JaxTrainer:
    """Collects and learns on a JAX environment. Its methods are pure functions of the training state, which you can jit and vmap.

    Args:
        collector: collects the rollouts. With its ``seeds_axis`` the methods run under ``jax.vmap(..., axis_name="seeds")``.
    """

    def __init__(self, collector: JaxCollector):
        self.collector = collector
        self._precision = functools.partial(jax.default_matmul_precision, collector.config.run.matmul_precision)

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Collect a rollout and learn from it. After the first NaN or infinity, the state no longer changes.

        Args:
            state: the training state.

        Returns:
            The next state, and metrics ``train/…`` and ``rollout/…``.
        """
        with self._precision():
            collected, rollout, episodes = self.collector.collect(state.learner.policy, state.collector)
            learner, healthy, metrics = learn(state.learner, state.healthy, rollout, self.collector.seeds_axis)
        return TrainState(learner, kept(healthy, collected, state.collector), healthy), {**metrics, **episodes}

    def advance(self, state: TrainState, num_updates: Int32[Array, ""], capacity: int) -> tuple[TrainState, Metrics]:
        """Run several updates in one call.

        ``num_updates`` is traced: one program serves every number, so the division of a run into calls does not change its
        bits (docs/decisions/0004-traced-trip-count.md).

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

    def inspect_before(self, state: TrainState) -> tuple[Rollout, dict[str, Any]]:
        """The rollout that ``update`` will collect from ``state``, and its quantities for histograms."""
        with self._precision():
            _, rollout, episodes = self.collector.collect_episodes(state.learner.policy, state.collector)
            learned = diagnostics.learned_from(state.learner, rollout)
        return rollout, {
            **learned,
            "episode_returns": episodes.episode_return,
            "episode_lengths": episodes.length,
            "episode_ends": episodes.finished,
        }

    def inspect_after(self, before: TrainState, after: TrainState, rollout: Rollout) -> Float[Array, "T N"]:
        """The probability ratios of ``rollout`` after the update from ``before`` to ``after``."""
        with self._precision():
            return diagnostics.ratios(before.learner, after.learner.policy, rollout)
