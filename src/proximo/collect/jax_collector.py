"""Rollouts of JAX environments, and trainings on them: pure functions, to be jitted, vmapped and scanned."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh
from jaxtyping import Array, Int32, Key, PyTree

from proximo.collect import jax_vector
from proximo.collect.devices import check_divisible, divided, placed
from proximo.collect.learning import check_policy, fresh_learner, inspect, kept, learn, without_running_return
from proximo.collect.self_play import PolicyPlayer, opponent, past_policies
from proximo.config import Config
from proximo.envs.level_seeds import with_levels
from proximo.envs.libraries import has_opponent, num_agents
from proximo.envs.protocol import Environment
from proximo.errors import ConfigError
from proximo.math.across_devices import ENVS_AXIS, largest, own_part, smallest
from proximo.math.masked_statistics import count, masked_mean, masked_std
from proximo.networks import ActorCritic
from proximo.ppo import LearnerState
from proximo.ppo.hyperparameters import Hyperparameters
from proximo.ppo.minibatches import run_burn_in
from proximo.types import BurnIn, CompensatedSum, EpisodeStatistics, JaxCollectorState, Metrics, Rollout, TrainState, select

NO_LIMIT = 2**32 - 1
OPPONENT = 4
"""Stream of the random numbers that choose an opponent: the first four are those of a rollout."""
UNROLL = 2
"""Steps in one turn of the loop over a rollout on an accelerator, where each turn has a latency (benchmarks/RESULTS.md). More
than two save a further 1 to 7 % of an update, and each compiles a simulated robot once more."""
Episodes = dict[str, Array]
"""The running episodes after each step of a rollout, T N: ``episode_returns`` and ``episode_lengths`` so far, ``episode_ends`` where they
end with the step and are counted, and ``success``, of agents or of environments, if it is ever reported. With several agents also, T E,
``team_returns`` (of all agents together) and ``team_ends``."""


class JaxCollector:
    """Steps a JAX environment with a policy. Its methods are pure functions of the training state, which you can jit and vmap.

    Args:
        config: the settings.
        env: the environment.
        seeds_axis: whether the methods run under ``jax.vmap(..., axis_name="seeds")``.

    Raises:
        EnvError: ``env`` breaks the protocol, or is a Gymnasium environment.
    """

    def __init__(self, config: Config, env: Environment, seeds_axis: bool = False):
        self.config, self.env, self.seeds_axis = config, jax_vector.check_env(env, config.env.id), seeds_axis
        self.limit = config.env.max_episode_steps or NO_LIMIT

    def init(self, key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> TrainState:
        """Return the state before the first step.

        Args:
            key: random key of the training.
            hyperparameters: from ``proximo.ppo.make_hyperparameters``; None: those of the settings.

        Returns:
            The training state.
        """
        learner, key_collector = fresh_learner(key, self.env, self.config, hyperparameters)
        return TrainState(learner, self._init_collector(key_collector, learner.policy), jnp.array(True))

    def with_new_episodes(self, learner: LearnerState, key: Key[Array, ""]) -> TrainState:
        """The state of a trained ``learner`` with new episodes, whose random numbers follow from ``key``."""
        return TrainState(without_running_return(learner), self._init_collector(key, learner.policy), jnp.array(True))

    def init_seeds(self, keys: Key[Array, " K"], hyperparameters: Hyperparameters | None = None) -> TrainState:
        """A state for each key, stacked. They are made one after the other, because vmapped orthogonal
        initializers can deadlock XLA's CPU runtime on few cores."""
        return jax.lax.map(lambda key: self.init(key, hyperparameters), keys)

    def _init_collector(self, key: Key[Array, ""], policy: ActorCritic) -> JaxCollectorState:
        num_envs, agents, stagger = self.config.env.num_envs, num_agents(self.env), self.config.env.stagger_steps
        columns = num_envs * agents
        key, key_reset, key_stagger = jax.random.split(key, 3)
        params = first = jax.tree.map(jnp.asarray, self.env.default_params)
        if has_opponent(self.env):
            params, first = past_policies(policy, self.config.env.opponents), PolicyPlayer(policy)
        env_state, observation = jax_vector.reset(self.env, jax.random.split(key_reset, num_envs), first)
        always, burn_in, no_previous = jnp.ones(columns, bool), self.config.ppo.burn_in, policy.no_previous_step(columns)
        before = policy.with_previous_step(observation, ~always, no_previous), ~always, ~always
        limit = jnp.full(num_envs, self.limit, jnp.uint32)
        if stagger:
            limit = jnp.minimum(limit, jax.random.randint(key_stagger, (num_envs,), 1, stagger + 1).astype(jnp.uint32))
        limit = jnp.repeat(limit, agents) if agents > 1 else limit
        return JaxCollectorState(
            env_params=params,
            env_state=env_state,
            observation=observation,
            episode_start=always,
            memory=policy.init_memory(columns),
            episode=EpisodeStatistics(CompensatedSum.zeros(columns), jnp.zeros(columns, jnp.uint32), always & bool(stagger)),
            step_limit=limit,
            key=key,
            burn_in_steps=BurnIn(*jax.tree.map(lambda x: jnp.zeros((burn_in, *x.shape), x.dtype), before)) if burn_in else None,
            burn_in_memory=policy.init_memory(columns) if burn_in else (),
            previous=no_previous,
            present=always if agents > 1 else None,
        )

    def collect(self, policy: ActorCritic, state: JaxCollectorState) -> tuple[JaxCollectorState, Rollout, Metrics]:
        """Take ``num_steps`` steps of all environments.

        Args:
            policy: the policy that acts.
            state: the collector's part of the training state.

        Returns:
            The next state, the rollout, and metrics ``rollout/…`` of the episodes that ended in it.
        """
        state, rollout, episodes = self.collect_episodes(policy, state)
        return state, rollout, _episode_metrics(episodes)

    def collect_episodes(self, policy: ActorCritic, state: JaxCollectorState) -> tuple[JaxCollectorState, Rollout, Episodes]:
        """``collect`` with the episodes themselves in place of their metrics."""
        num_steps, num_envs = whole = self.config.ppo.num_steps, self.config.env.num_envs
        pieces = num_steps // self.config.sequence_length if policy.is_recurrent else 1
        burn_in = self.config.ppo.burn_in
        key, key_noise, key_step, key_reset = jax.random.split(state.key, 4)
        params = state.env_params
        if has_opponent(self.env):
            params, past = opponent(policy, params, jax.random.fold_in(key, OPPONENT))
            state = dataclasses.replace(state, env_params=past)
        # All random numbers of the rollout at once: a draw in every step costs more than twice as much. Each device draws
        # those of all environments, so that they do not depend on the number of devices.
        noise = policy.actor.noise(key_noise, (num_steps, num_envs * num_agents(self.env)))
        drawn = own_part(noise), *own_part((jax.random.split(key_step, whole), jax.random.split(key_reset, whole)))
        drawn = jax.tree.map(lambda x: x.reshape((pieces, num_steps // pieces, *x.shape[1:])), drawn)

        def run(state: JaxCollectorState, drawn: PyTree) -> tuple[JaxCollectorState, tuple]:
            unroll = 1 if jax.default_backend() == "cpu" else UNROLL
            return jax.lax.scan(lambda s, of_step: self._step(policy, params, s, *of_step), state, drawn, unroll=unroll)

        def piece(state: JaxCollectorState, drawn: PyTree) -> tuple[JaxCollectorState, tuple]:
            """One sequence. Returns the memory before the next sequence's burn-in."""
            before_burn_in = num_steps // pieces - burn_in
            state, out = run(state, jax.tree.map(lambda x: x[:before_burn_in], drawn))
            memory = state.memory
            if burn_in:
                state, rest = run(state, jax.tree.map(lambda x: x[before_burn_in:], drawn))
                out = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), out, rest)
            return state, (memory, out)

        before, burn_in_steps = state.burn_in_memory if burn_in else state.memory, state.burn_in_steps
        # With the parameters that act in this rollout, as the learner does it.
        state = dataclasses.replace(state, memory=run_burn_in(policy, before, burn_in_steps))
        state, (memory, out) = jax.lax.scan(piece, state, drawn)
        last = jax.tree.map(lambda m: m[-1], memory)
        memory = jax.tree.map(lambda b, m: jnp.concatenate([b[None], m[:-1]]), before, memory)
        fields, episodes = jax.tree.map(lambda x: x.reshape((num_steps, *x.shape[2:])), out)
        last_observation = policy.with_previous_step(state.observation, state.episode_start, state.previous)
        rollout = Rollout(
            **{"valid": jnp.ones_like(fields["episode_start"]), **fields},
            memory=memory,
            last_observation=last_observation,
            last_episode_start=state.episode_start,
            last_memory=state.memory,
            last_value=policy.value(state.memory, last_observation, state.episode_start),
            burn_in_steps=burn_in_steps,
        )
        if burn_in:
            late = jax.tree.map(lambda x: x[num_steps - burn_in :], (rollout.observation, rollout.episode_start, rollout.valid))
            state = dataclasses.replace(state, burn_in_steps=BurnIn(*late), burn_in_memory=last)
        return dataclasses.replace(state, key=key), rollout, episodes

    def _step(
        self, policy: ActorCritic, params: PyTree, state: JaxCollectorState, noise: PyTree, key_step: Array, key_reset: Array
    ) -> tuple:
        """One step of all environments: act, step, bootstrap truncated episodes, reset ended ones. Returns
        fields of ``Rollout`` and the episodes."""
        present = jnp.ones_like(state.episode_start) if state.present is None else state.present
        before = jax_vector.StepState(state.env_state, state.observation, state.memory, state.previous)
        arguments = before, state.episode_start, present, noise, key_step, params
        after, step, success = jax_vector.policy_step(self.env, policy, *arguments)
        if state.present is not None:  # an absent agent leaves padding
            step |= {"reward": jnp.where(present, step["reward"], 0.0), "valid": present}
            step |= {name: step[name] & present for name in ("terminated", "truncated")}
        length, episode_return = state.episode.length + present, state.episode.episode_return.plus(step["reward"])
        over_time = (length >= state.step_limit) & ~step["terminated"] & present
        truncated = step["truncated"] | over_time
        done = step["terminated"] | truncated
        within = jnp.zeros_like(done)
        bootstrap_value = jax_vector.where_any(
            truncated,
            lambda: policy.value(after.memory, policy.with_previous_step(after.observation, within, after.previous), within),
            jax.tree.map(jnp.zeros_like, step["value"]),
            self.seeds_axis,
            cheap=all(x.ndim <= 2 for x in jax.tree.leaves(state.observation)),  # the value of an image needs a CNN
        )
        step |= {"episode_start": state.episode_start, "truncated": truncated, "bootstrap_value": bootstrap_value}
        # In a staggered start, first episodes are not counted: those that are cut short would bias the means.
        ends = done & ~state.episode.partial
        episodes = {"episode_returns": episode_return.value, "episode_lengths": length, "episode_ends": ends}
        episodes |= {} if success is None else {"success": success}
        over, starts = done, done  # of environments and of columns
        if state.present is not None:
            running = present & ~done
            over = ~jax_vector.by_env(running, self.env).any(axis=1)
            starts = jnp.repeat(over, num_agents(self.env))
            episodes["team_returns"] = jax_vector.by_env(episode_return.value, self.env).sum(axis=1)
            episodes["team_ends"] = over & ~jax_vector.by_env(state.episode.partial, self.env).any(axis=1)
            # The policy acts on zeros for absent agents: what the environment returns for them may be NaN.
            seen = select(running, after.observation, jax.tree.map(jnp.zeros_like, after.observation))
            after = after._replace(observation=seen, previous=select(present, after.previous, state.previous))
            state = dataclasses.replace(state, present=running | starts)

        def begin() -> PyTree:
            env_state, observation = jax_vector.reset(self.env, key_reset, params)
            return env_state, jax_vector.by_env(observation, self.env)

        otherwise = after.env_state, jax_vector.by_env(after.observation, self.env)
        env_state, observation = jax_vector.where_any(over, begin, otherwise, self.seeds_axis)
        statistics = EpisodeStatistics(
            episode_return.zero_where(starts), jnp.where(starts, 0, length), state.episode.partial & ~starts
        )
        state = dataclasses.replace(
            state,
            env_state=env_state,
            observation=jax_vector.by_column(observation, self.env),
            episode_start=starts,
            memory=after.memory,
            episode=statistics,
            step_limit=jnp.where(starts, jnp.uint32(self.limit), state.step_limit),
            previous=after.previous,
        )
        return state, (step, episodes)


def _episode_metrics(episodes: Episodes) -> Metrics:
    """Statistics of the episodes that finished, 0 if none did."""
    finished = episodes["episode_ends"]
    number = count(finished)
    metrics = {"rollout/episodes": number}
    for name in ("return", "length"):
        x = episodes[f"episode_{name}s"].astype(jnp.float32)
        metrics[f"rollout/{name}_mean"] = masked_mean(x, finished)
        metrics[f"rollout/{name}_std"] = masked_std(x, finished)
        for extreme, function, of_all, other in (("min", jnp.min, smallest, jnp.inf), ("max", jnp.max, largest, -jnp.inf)):
            found = of_all(function(jnp.where(finished, x, other)))
            metrics[f"rollout/{name}_{extreme}"] = jnp.where(number > 0, found, 0.0)
    if "team_ends" in episodes:
        ends = episodes["team_ends"]
        metrics |= {"rollout/team_episodes": count(ends), "rollout/team_return_mean": masked_mean(episodes["team_returns"], ends)}
    if (success := episodes.get("success")) is not None:
        ends = finished if success.shape == finished.shape else episodes["team_ends"]
        metrics["rollout/success_rate"] = masked_mean((success & ends).astype(jnp.float32), ends)
    return metrics


class JaxTrainer:
    """Collects and learns on a JAX environment. Its methods are pure functions of the training state, which you can jit and vmap.

    Args:
        collector: collects the rollouts. With its ``seeds_axis`` the methods run under ``jax.vmap(..., axis_name="seeds")``.
    """

    def __init__(self, collector: JaxCollector):
        self.collector = collector
        self._precision = functools.partial(jax.default_matmul_precision, collector.config.run.matmul_precision)

    def collect(self, state: TrainState) -> tuple[TrainState, Rollout, Metrics]:
        """The first half of ``update``. Returns the next state, the rollout, and metrics ``rollout/…``."""
        with self._precision():
            collected, rollout, metrics = self.collector.collect(state.learner.policy, state.collector)
        return dataclasses.replace(state, collector=collected), rollout, metrics

    def learn(self, state: TrainState, rollout: Rollout) -> tuple[TrainState, Metrics]:
        """The second half of ``update``. Returns the next state, and metrics ``train/…``."""
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
            The next state, and metrics: arrays of shape ``(capacity,)``, whose first ``num_updates`` entries are filled.
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
        """Quantities of the update from ``before`` to ``after``, for histograms. Collects it again."""
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
      (``proximo.ppo.make_hyperparameters``) are traced, so you can vmap over them. Those that are off are None.
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
