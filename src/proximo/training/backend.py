"""``Backend``: the only interface between the training above it and the environments below it."""

import abc
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from proximo.collect.devices import on_one_device, row_of, whole
from proximo.collect.environment import evaluation_during_training
from proximo.config import Config
from proximo.envs import Environment
from proximo.envs.libraries import num_agents
from proximo.evaluation.episodes import Episodes
from proximo.evaluation.evaluators import GymnasiumEvaluator, make_evaluator
from proximo.jax_setup import return_freed_memory
from proximo.networks import ActorCritic
from proximo.ppo import make_hyperparameters
from proximo.processes.peers import Peers, current
from proximo.storage.checkpoint import POLICY, Checkpoint
from proximo.tracking.histograms import Histogram
from proximo.types import Observation, TrainState, add_steps

T = TypeVar("T")
CALL_SECONDS = 1.0
EvaluatedOn = tuple[Environment, Config]
"""The environment of evaluations, and the settings that describe it."""


class Backend(abc.ABC):
    """Trains policies with one ``Config`` on one kind of environment. ``make_backend`` makes the right one.

    A training calls ``prepare`` once, with ``start`` or ``join`` for a state, then ``advance`` until it ends, and ``close``.
    The state has a leading axis of seeds if the backend is ``stacked``. Later backends reuse compiled functions.
    """

    donates: bool
    """Whether ``advance`` uses up the arrays of its state. A caller that still needs them makes a copy."""

    def __init__(
        self, config: Config, env: Environment, collector: Any, stacked: bool, evaluation: EvaluatedOn | None, mesh: Mesh | None
    ):
        self.config, self.env, self.collector, self.stacked = config, env, collector, stacked
        self.num_devices = 1 if mesh is None else mesh.size
        """Devices that ``advance`` computes on. Everything else is computed on one."""
        self.compile_seconds = 0.0  # seconds that ``prepare`` has taken so far
        self.evaluation = evaluation or evaluation_during_training(config, env)
        run, part, self._evaluator = config.run, (self.peers.index, self.peers.count), None
        if run.eval_episodes:
            self._evaluator = make_evaluator(*self.evaluation, run.eval_episodes, run.eval_num_envs or None, part)

    @functools.cached_property
    def peers(self) -> Peers:
        return current()

    @functools.cached_property
    def template(self) -> TrainState:
        """Shapes and types of the state of one seed. A checkpoint is loaded into it."""
        return jax.eval_shape(lambda: self.collector.init(jax.random.key(0)))

    def restore(self, saved: Checkpoint) -> TrainState:
        """The state of one seed in a checkpoint. Hyperparameters, and what is not saved, are as in a new training."""
        if not saved.policy_only:
            return self._with_settings(saved.restore(self.template))
        policy = saved.restore(self.template.learner.policy, part=POLICY)
        # Earlier trainings, with other hyperparameters, may share the collector.
        key, hyperparameters = jax.random.key(self.config.run.seed), make_hyperparameters(self.config.ppo)
        state = jax.jit(self.collector.init)(key, hyperparameters)
        steps = add_steps(state.learner.steps, saved.step)
        return eqx.tree_at(lambda s: (s.learner.policy, s.learner.steps), state, (policy, steps))

    def _with_settings(self, state: TrainState) -> TrainState:
        return dataclasses.replace(state, learner=state.learner.with_settings(self.config))

    @abc.abstractmethod
    def start(self, seeds: list[int]) -> TrainState:
        """The state before the first step, of each seed. A backend that is not stacked takes one seed."""

    def join(self, states: list[TrainState]) -> TrainState:
        """The states of all seeds as one state, with the hyperparameters of ``config``."""
        states = [self._with_settings(state) for state in states]
        return jax.tree.map(lambda *x: jnp.stack(x), *states) if self.stacked else states[0]

    def filled(self, seeds: list[T]) -> list[T]:
        """``seeds`` (or their states), with copies of the first, so that all devices have equally many."""
        return seeds

    def seeds_of_a_device(self, num_seeds: int) -> float:
        """How many of ``num_seeds`` seeds one device trains. Fewer seeds may use fewer devices."""
        return num_seeds

    def seed_state(self, state: T, index: int) -> T:
        """The state of one seed, with its learner on one device; or the arrays of one seed in another tree.
        Several processes call it together, and each gets the whole state."""
        seed_state: Any = row_of(state, index) if self.stacked else state
        if self.peers.count > 1:
            return whole(seed_state)
        if (self.stacked or self.num_devices > 1) and isinstance(seed_state, TrainState):
            return eqx.tree_at(lambda s: s.learner, seed_state, on_one_device(seed_state.learner))
        return seed_state

    def policy(self, state: TrainState, index: int) -> ActorCritic:
        """The policy of one seed, on one device of this process."""
        policy = state.learner.policy
        return on_one_device(row_of(policy, index) if self.stacked else policy)

    @abc.abstractmethod
    def with_new_episodes(self, state: TrainState) -> TrainState:
        """The state of one seed with the same learner and new episodes, seeded by the state's key."""

    def prepare(self, make_state: Callable[[], TrainState], num_seeds: int = 1) -> TrainState:
        """Compile, open the environments, and call ``make_state()`` for ``num_seeds`` seeds, all at once, to start sooner."""
        started = time.monotonic()
        _ = self.template  # traced here: threads that trace the code of a user at the same time could disturb each other
        state = self._prepare(make_state, num_seeds)
        return_freed_memory()  # what compiling has freed
        self.compile_seconds += time.monotonic() - started
        return state

    @abc.abstractmethod
    def _prepare(self, make_state: Callable[[], TrainState], num_seeds: int) -> TrainState: ...

    def _compile_evaluation(self) -> None:
        if self._evaluator is not None and self.num_devices == 1:  # on several, the policy has another place
            self._evaluator.compile(self.template.learner.policy)

    @abc.abstractmethod
    def advance(self, state: TrainState, num_updates: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        """Collect and learn, from 1 to ``updates_per_call`` times.

        Returns the state, and metrics of shape (seeds, updates), of all ``filled`` seeds. There are fewer updates if an environment failed; the
        next call raises its error. Raises ``EnvError`` or ``EnvironmentFault`` if an environment failed in the first update.
        """

    @abc.abstractmethod
    def observation(self, state: TrainState) -> Observation | None:
        """An observation [1, ...] of one seed, whose ``state`` ``advance`` has returned; None without one."""

    @abc.abstractmethod
    def inspect(self, before: TrainState, after: TrainState) -> list[dict[str, Histogram]]:
        """The histograms of the single update from ``before`` to ``after``, for each of the ``filled`` seeds;
        an empty list if the update was cut short."""

    def evaluate(self, policy: ActorCritic, seed: int, stream: int, episodes: int | None = None) -> Episodes:
        """Play ``eval_episodes`` greedy episodes on environment seeds that follow from ``seed`` and ``stream`` alone, or fewer
        ``episodes``, a multiple of ``episodes_together``. Each of several processes plays a part of them."""
        assert self._evaluator is not None, "eval_episodes = 0"
        return self._evaluator(policy, seed, stream, episodes=episodes)

    @property
    def episodes_together(self) -> int:
        """Episodes that an evaluation plays at a time; 0 on JAX environments, where it takes little time."""
        return self._evaluator.num_envs if isinstance(self._evaluator, GymnasiumEvaluator) else 0

    def send_warnings_to(self, warn: Callable[[str], None]) -> None:
        """Have ``warn`` receive warnings about environments, such as lost workers."""
        if isinstance(self._evaluator, GymnasiumEvaluator):
            self._evaluator.environments.warn = warn

    def is_computing(self) -> bool:
        """Whether this process computes now. False while it may wait for environments or processes."""
        return self.peers.count == 1

    def describe(self) -> str:
        """How environments are stepped, in words; empty if there is only one way."""
        return ""

    def fault(self) -> str:
        """Which environment returned NaN or infinity, if known. Several processes call it together."""
        return ""

    def close(self) -> None:
        if self._evaluator is not None:
            self._evaluator.close()


def copy_of(state: T) -> T:
    """A copy of the arrays in ``state``, which stays valid when a backend donates ``state``."""

    def copy(x: jax.Array) -> jax.Array:
        # jnp.copy compiles a program for each shape, but also copies what several devices or processes share.
        return jax.device_put(x, may_alias=False) if len(x.devices()) == 1 else jnp.copy(x)

    return jax.tree.map(copy, state)


class Snapshot(NamedTuple):
    """A training state between two updates, with the updates and the environment steps of each seed that led
    to it, and the metrics of the last call, of shape (seeds, updates)."""

    state: TrainState
    update: int
    step: int
    metrics: Mapping[str, np.ndarray] = {}


class TimedCalls:
    """Advances a training in calls of about ``CALL_SECONDS``, so that Ctrl-C and reports come in time.

    ``call(function, *arguments)`` calls the backend; it may raise to end the training. ``max_updates`` limits the
    updates of one call.
    """

    def __init__(self, backend: Backend, call: Callable[..., Any], max_updates: int | None = None):
        self.backend, self.call, self.max_updates = backend, call, max_updates
        self.seconds, self.updates = 0.0, 0
        # The last call is timed separately: an environment may become slower or faster.
        self.last_seconds, self.last_updates = 0.0, 0

    @property
    def last_seconds_per_update(self) -> float:
        """The mean over the last call; 0 before the first call."""
        return self.last_seconds / self.last_updates if self.last_updates else 0.0

    @property
    def seconds_per_update(self) -> float:
        """The mean over all updates so far; 0 before the first one."""
        return self.seconds / self.updates if self.updates else 0.0

    @property
    def steps(self) -> int:
        """Environment steps of each seed in all calls so far."""
        return self.updates * self.backend.config.batch_size

    @property
    def num_agents(self) -> int:
        """Agents of an environment."""
        return num_agents(self.backend.env)

    def num_updates(self, update: int, boundary: float) -> int:
        """Updates of the next call, from ``update`` to ``boundary`` at most; at least 1."""
        seconds = self.last_seconds_per_update
        wanted = self.max_updates or (int(CALL_SECONDS / seconds) if seconds else 1)
        return max(1, int(min(wanted, boundary - update, self.backend.config.updates_per_call)))

    def advance(self, now: Snapshot, num_updates: int) -> Snapshot:
        """Do ``num_updates`` updates in one call; fewer if an environment fails."""
        started = time.monotonic()
        state, metrics = self.call(self.backend.advance, now.state, num_updates)
        self.last_seconds, self.last_updates = time.monotonic() - started, next(iter(metrics.values())).shape[1]
        self.seconds, self.updates = self.seconds + self.last_seconds, self.updates + self.last_updates
        step = now.step + self.last_updates * self.backend.config.batch_size
        return Snapshot(state, now.update + self.last_updates, step, metrics)
