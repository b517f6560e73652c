"""The backends for JAX and for Gymnasium environments, and which of them trains on an environment."""

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool

from proximo.collect import GymnasiumCollector, JaxCollector, JaxTrainer, jax_vector
from proximo.collect.devices import divided, filled, joined, make_mesh, mesh_for, on_one_device, placed, whole
from proximo.collect.episode_tally import Episode
from proximo.collect.gymnasium_collector import Collection, Timing
from proximo.collect.gymnasium_programs import GymnasiumPrograms
from proximo.collect.learning import without_running_return
from proximo.collect.program_cache import CompiledFunction, program_key, reuse
from proximo.collect.ray_collector import RayCollector
from proximo.config import Config
from proximo.envs import Environment, GymnasiumEnvironment, JaxEnvironment
from proximo.errors import ConfigError, ProximoError, TrainingError, require
from proximo.networks import ActorCritic
from proximo.ppo import Hyperparameters, LearnerState, make_hyperparameters
from proximo.processes.peers import current
from proximo.threads import in_thread, together
from proximo.tracking import histograms
from proximo.tracking.histograms import Histogram
from proximo.training.backend import Backend, EvaluatedOn
from proximo.types import GymnasiumCollectorState, Metrics, Observation, Rollout, TrainState, int_of_steps

T = TypeVar("T")
BRIEF_ENVS = 64
"""With more JAX environments, a slow first reset may take longer than its faster compilation saves."""


def make_backend(config: Config, env: Environment, stacked: bool = False, evaluation: EvaluatedOn | None = None) -> Backend:
    """The backend that trains on ``env``, ``stacked`` if it supports this. ``evaluation`` is by default the
    environment that ``config`` describes. Raises ``EnvError`` if a JAX environment breaks its protocol."""
    if isinstance(env, GymnasiumEnvironment):
        return GymnasiumBackend(config, env, evaluation)
    return JaxBackend(config, env, stacked, evaluation)


def stacks_seeds(config: Config, env: Environment) -> bool:
    """Whether several seeds train together: on JAX environments in one process, unless ``seeds_mode`` is ``serial``."""
    return config.run.seeds_mode != "serial" and not isinstance(env, GymnasiumEnvironment) and current().count == 1


class JaxPrograms:
    """The compiled functions that trainings share if their settings differ only in traced numbers."""

    def __init__(self, config: Config, env: JaxEnvironment, stacked: bool, mesh: Mesh | None):
        # A reference to env: the cache key contains id(env), which Python would reuse if env were freed.
        self.collector = collector = JaxCollector(config, env, seeds_axis=stacked and jax_vector.vmaps_seeds())
        trainer, capacity = JaxTrainer(collector), config.updates_per_call
        init = collector.init_seeds if stacked else collector.init
        self._mesh, self._stacked = mesh, stacked

        def of_all(function: Callable[..., Any]) -> Callable[..., Any]:
            return jax_vector.over_seeds(function) if stacked else function

        def on_a_device(state: TrainState, num_updates: jax.Array) -> tuple[TrainState, Metrics]:
            return of_all(lambda seed: trainer.advance(seed, num_updates, capacity))(state)

        def advance(state: TrainState, num_updates: jax.Array) -> tuple[TrainState, Metrics]:
            return divided(on_a_device, self._mesh_for(state), stacked)(state, num_updates)

        def start(seeds: jax.Array, hyperparameters: Hyperparameters) -> TrainState:
            keys = jax.vmap(jax.random.key)(seeds) if stacked else jax.random.key(seeds[0])
            return self.placed(init(keys, hyperparameters))

        self.start = CompiledFunction(start, brief=config.env.num_envs <= BRIEF_ENVS)
        self.with_new_episodes = jax.jit(collector.with_new_episodes)
        self.advance = CompiledFunction(advance, donate=(0,))
        self.inspect = jax.jit(of_all(trainer.inspect))

    def placed(self, state: TrainState) -> TrainState:
        return placed(state, self._mesh_for(state), self._stacked)

    def _mesh_for(self, state: TrainState) -> Mesh | None:
        return mesh_for(self._mesh, state.healthy.size) if self._stacked else self._mesh


class JaxBackend(Backend):
    """Trains on a JAX environment. Collecting and learning are one compiled program."""

    donates = True

    def __init__(self, config: Config, env: JaxEnvironment, stacked: bool = False, evaluation: EvaluatedOn | None = None):
        self._mesh = mesh = make_mesh(config, stacked)
        key = program_key(config, env, stacked, mesh)
        self._programs: JaxPrograms = reuse(key, lambda: JaxPrograms(config, env, stacked, mesh))
        super().__init__(config, env, self._programs.collector, stacked, evaluation, mesh)

    def start(self, seeds: list[int]) -> TrainState:
        seeds = self.filled(seeds)
        return jax.block_until_ready(self._programs.start(len(seeds), np.asarray(seeds), self._hyperparameters()))

    def join(self, states: list[TrainState]) -> TrainState:
        return super().join(self.filled(states))

    def filled(self, seeds: list[T]) -> list[T]:
        return filled(seeds, self._mesh) if self.stacked else seeds

    def seeds_of_a_device(self, num_seeds: int) -> float:
        num_seeds = len(self.filled([0] * num_seeds))
        mesh = mesh_for(self._mesh, num_seeds)
        return num_seeds / mesh.size if mesh else num_seeds

    def _hyperparameters(self) -> Hyperparameters:
        return jax.tree.map(np.asarray, make_hyperparameters(self.config.ppo))

    def with_new_episodes(self, state: TrainState) -> TrainState:
        return self._programs.with_new_episodes(*on_one_device((state.learner, state.collector.key)))

    def _prepare(self, make_state: Callable[[], TrainState], num_seeds: int) -> TrainState:
        num_seeds = len(self.filled([0] * num_seeds))
        # Compiling needs only the shapes of the state.
        shapes = self._programs.start.shapes(np.zeros(num_seeds, int), self._hyperparameters())
        # In this order: the program that trains takes longest to compile.
        *_, state = together(
            lambda: self._programs.advance.program(num_seeds, self._programs.placed(shapes), np.int32(1)),
            self._compile_evaluation,
            make_state,
        )
        return state

    def advance(self, state: TrainState, num_updates: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        state, metrics = self._programs.advance(state.healthy.size, self._programs.placed(state), np.int32(num_updates))
        metrics = jax.block_until_ready(metrics)
        return state, {name: np.atleast_2d(np.asarray(x))[:, :num_updates] for name, x in metrics.items()}

    def observation(self, state: TrainState) -> Observation:
        return jax.tree.map(lambda x: np.asarray(x)[:1], state.collector.observation)

    def inspect(self, before: TrainState, after: TrainState) -> list[dict[str, Histogram]]:
        # Not by the program that trains, which stays the same. On a CPU, one seed after the other.
        place = on_one_device if self.stacked and not jax_vector.vmaps_seeds() else self._programs.placed
        quantities = jax.device_get(whole(self._programs.inspect(place(before), place(after))))
        return [histograms.of_rows(self.seed_state(quantities, i)) for i in range(before.healthy.size)]


class GymnasiumBackend(Backend):
    """Trains one seed on a Gymnasium environment. With ``learner_lag``, the next rollout is collected during
    each update, with the policy from before the update."""

    donates = False
    collector: GymnasiumCollector

    def __init__(self, config: Config, env: GymnasiumEnvironment, evaluation: EvaluatedOn | None = None):
        mesh = make_mesh(config)
        key = program_key(config, env, False, mesh)
        self._programs = programs = reuse(key, lambda: GymnasiumPrograms(config, env, mesh))
        if config.env.actors:
            if self.peers.count > 1:
                raise ConfigError(
                    f"actors = {config.env.actors}: Ray actors serve one process. Omit them, or omit --distributed."
                )
            require("ray", "actors (Ray)", "ray")  # ``connect`` imports it, after it has set variables that it reads
            collector = RayCollector(config, env, programs)
        else:
            collector = GymnasiumCollector(config, env, programs, self.peers.part(config.env.num_envs), self.peers)
        super().__init__(config, env, collector, False, evaluation, mesh)
        self.last_rollout: Rollout | None = None
        """The rollout of the last update, until the next update begins; None if that update failed."""
        self.last_episodes: list[Episode] = []
        self._learns, self._is_closed, self._bad_environment = False, False, ""
        self._ahead: tuple[Collection, list[Episode]] | None = None
        """What was collected during the last update."""
        self._failure: Exception | None = None
        """The error that ended collecting. Each later update raises it."""

    def start(self, seeds: list[int]) -> TrainState:
        state = self._programs.start(0, np.uint32(seeds[0]), make_hyperparameters(self.config.ppo))
        return jax.block_until_ready(self._begin(state))

    def join(self, states: list[TrainState]) -> TrainState:
        return self._begin(super().join(states))

    def _begin(self, state: TrainState) -> TrainState:
        """Train this state from now on, with new episodes, on the devices that the learner computes on."""
        self.collector.begin()
        self._ahead = self._failure = None
        self._bad_environment = ""
        learner, healthy = placed((without_running_return(state.learner), state.healthy), self._programs.mesh)
        return TrainState(learner, state.collector, healthy)

    def with_new_episodes(self, state: TrainState) -> TrainState:
        # The state may be that of a JAX environment.
        learner, key = on_one_device((state.learner, state.collector.key))
        return TrainState(without_running_return(learner), GymnasiumCollectorState(key), jnp.array(True))

    def _prepare(self, make_state: Callable[[], TrainState], num_seeds: int) -> TrainState:
        # Ray's actors make their environments in their first call.
        opening = [] if self.config.env.actors else [self.collector.environments.open]
        *_, state = together(*opening, self._compile_evaluation, make_state)
        if not self._is_closed:  # after an interruption, nothing may be opened
            rollout, compile_acting = self.collector.example(on_one_device(state.learner.policy), state.collector)
            arguments = state.learner, state.healthy, joined(rollout, self._programs.mesh)
            together(compile_acting, lambda: self._programs.learn.program(0, *arguments))
        return state

    def advance(self, state: TrainState, num_updates: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        updates: list[dict[str, float]] = []
        try:
            while len(updates) < num_updates:
                state, metrics = self.update(state)
                updates.append(metrics)
        except (ProximoError, TrainingError):
            if not (updates and self.peers.can_rescue):  # otherwise the next call raises it
                raise
        names = dict.fromkeys(name for metrics in updates for name in metrics)
        return state, {name: np.array([[metrics.get(name, np.nan) for metrics in updates]]) for name in names}

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, float]]:
        """Collect and learn once. NaN or infinity leaves the learner as it was, in this update and all later ones.
        Raises ``EnvError`` or ``EnvironmentFault`` if an environment failed in the rollout of this update."""
        if self._failure is not None:
            raise self._failure
        self.last_rollout = None
        self.collector.timing = timing = Timing()
        restarts, policy = self.collector.environments.restarts, state.learner.policy
        collected = self._ahead or self._collect(policy, state.collector)
        ((collector_state, rollout, episodes), finished), self._ahead = collected, None
        learning = None
        end = self.config.total_updates * self.config.batch_size
        if self.config.ppo.learner_lag and int_of_steps(state.learner.steps) + self.config.batch_size < end:
            learning = in_thread(self._learn, state, rollout)
            later = (ProximoError, TrainingError) if self.peers.can_rescue else ()
            with contextlib.suppress(*later):  # the next update raises it
                self._ahead = self._collect(policy, collector_state)
                collector_state = self._ahead[0][0]
        timing.lap()
        learner, healthy, metrics = self._learn(state, rollout) if learning is None else learning.result()
        timing.update += timing.lap()
        self.last_rollout, self.last_episodes = rollout, finished
        restarted = {"rollout/restarts": float(self.collector.environments.restarts - restarts)}
        return TrainState(learner, collector_state, healthy), {**metrics, **episodes, **timing.shares(), **restarted}

    def _collect(self, policy: ActorCritic, state: GymnasiumCollectorState) -> tuple[Collection, list[Episode]]:
        try:
            return self.collector.collect(policy, state), self.collector.episodes.finished
        except (ProximoError, TrainingError) as failure:
            self._failure = failure
            raise

    def _learn(self, state: TrainState, rollout: Rollout) -> tuple[LearnerState, Bool[Array, ""], dict[str, float]]:
        self._learns = True
        try:
            learned = self._programs.learn(0, state.learner, state.healthy, joined(rollout, self._programs.mesh))
            learner, healthy, metrics = jax.block_until_ready(learned)
        finally:
            self._learns = False
        if not healthy and not self._bad_environment:
            self._bad_environment = bad_environment(rollout, self.collector.part.start, self.collector.env.num_agents)
        return learner, healthy, dict(zip(metrics.names, np.asarray(metrics.values).tolist(), strict=True))

    def observation(self, state: TrainState) -> Observation | None:
        rollout = self.last_rollout
        return None if rollout is None else jax.tree.map(lambda x: np.asarray(x[:1]), rollout.last_observation)

    def inspect(self, before: TrainState, after: TrainState) -> list[dict[str, Histogram]]:
        if self.last_rollout is None:
            return []
        rollout, finished = joined(self.last_rollout, self._programs.mesh), self.last_episodes
        learned = self._programs.inspect(0, before.learner, after.learner.policy, rollout)
        episodes = {
            "episode_returns": np.array([episode.episode_return for episode in finished]),
            "episode_lengths": np.array([episode.length for episode in finished], np.int64),
            "episode_ends": np.ones(len(finished), bool),
        }
        return [histograms.of_rows({**jax.device_get(whole(learned)), **episodes})]

    def send_warnings_to(self, warn: Callable[[str], None]) -> None:
        super().send_warnings_to(warn)
        self.collector.environments.warn = warn

    def is_computing(self) -> bool:
        return super().is_computing() and self._learns

    def describe(self) -> str:
        lag = ", the learner one update behind" if self.config.ppo.learner_lag else ""
        return f"environments {self.collector.environments.describe()}{lag}"

    def fault(self) -> str:
        return next(filter(None, self.peers.agree(self._bad_environment, "the error for NaN or infinity")), "")

    def close(self) -> None:
        self.last_rollout, self._is_closed = None, True
        try:
            self.collector.environments.close()
        finally:
            super().close()


def bad_environment(rollout: Rollout, first_env: int, num_agents: int = 1) -> str:
    """Which environment returned NaN or infinity, and in which step, in words; empty if none did.
    ``first_env`` is the number of the first environment of ``rollout``."""
    observations = zip(*map(jax.tree.leaves, (rollout.observation, rollout.last_observation)), strict=True)
    checked: list[tuple[str, Any, Any]] = [("observation", np.concatenate([x, last[None]]), True) for x, last in observations]
    checked += [("reward", rollout.reward, rollout.valid)]
    checked += [("final observation", x, rollout.truncated) for x in jax.tree.leaves(rollout.bootstrap_value)]
    bad = [(name, ~np.isfinite(x).all(axis=tuple(range(2, x.ndim))) & mask) for name, x, mask in checked]
    found = [(t, i, name) for name, places in bad for t, i in np.argwhere(places)[:1].tolist()]
    if not found:
        return ""
    t, i, name = min(found, key=lambda place: place[0])  # the policy may observe a reward in the step after
    return f"environment {first_env + i // num_agents} gave it as {name} in step {t} of the rollout"
