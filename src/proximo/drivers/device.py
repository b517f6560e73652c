"""The device driver: environments, policy and learner in one compiled program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, Key, PyTree, UInt32

from proximo.config import Config
from proximo.drivers import vector
from proximo.drivers.learning import fresh_learner, fresh_policy, hold_policy, kept, learn, without_running_return
from proximo.envs import HostEnvironment, JaxEnvironment
from proximo.math.losses import masked_mean
from proximo.networks import ActorCritic
from proximo.ppo import LearnerState, inspection, make_hyperparameters
from proximo.ppo.batch import warm
from proximo.types import CollectorState, EpisodeStatistics, Hyperparameters, Metrics, Observation, Rollout, TrainState, Warmup

NO_LIMIT = 2**32 - 1


class DeviceDriver:
    """Trains on a JAX environment. Its methods are pure functions of the training state, to be jitted and vmapped.

    ``seeds_axis`` says that ``advance`` will run under ``jax.vmap(..., axis_name="seeds")``.
    """

    def __init__(self, config: Config, env: JaxEnvironment | HostEnvironment, seeds_axis: bool = False):
        self.config, self.env, self.seeds_axis = config, vector.check_env(env, config.env.id), seeds_axis
        self.limit = config.env.max_episode_steps or NO_LIMIT
        self.tells_success = vector.tells_success(self.env)

    def init_policy(self, key: Key[Array, ""]) -> ActorCritic:
        """A fresh policy for the environment's spaces. Raises ``EnvError`` where a space is not supported."""
        return fresh_policy(key, self.env, self.config)

    def init(self, key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> TrainState:
        """The state before the first step."""
        learner, key_collector = fresh_learner(
            key, self.env, self.config, hyperparameters or make_hyperparameters(self.config.ppo)
        )
        return TrainState(learner, self._init_collector(key_collector, learner.policy), jnp.array(True))

    def with_new_episodes(self, learner: LearnerState, key: Key[Array, ""]) -> TrainState:
        """The state of a trained ``learner`` with new episodes, whose random numbers follow from ``key``."""
        return TrainState(without_running_return(learner), self._init_collector(key, learner.policy), jnp.array(True))

    def init_seeds(self, keys: Key[Array, " K"]) -> TrainState:
        """A state for each key, stacked; one after the other, because vmapped orthogonal initialisers can deadlock XLA's
        CPU runtime on few cores."""
        return jax.lax.map(self.init, keys)

    def _init_collector(self, key: Key[Array, ""], policy: ActorCritic) -> CollectorState:
        num_envs, stagger = self.config.env.num_envs, self.config.env.stagger_steps
        key, key_reset, key_stagger = jax.random.split(key, 3)
        params = jax.tree.map(jnp.asarray, self.env.default_params)
        env_state, observation = vector.reset(self.env, jax.random.split(key_reset, num_envs), params)
        limit = jnp.full(num_envs, self.limit, jnp.uint32)
        if stagger:
            limit = jnp.minimum(limit, jax.random.randint(key_stagger, (num_envs,), 1, stagger + 1).astype(jnp.uint32))
        nothing = jnp.zeros(num_envs)
        return CollectorState(
            env_params=params,
            env_state=env_state,
            observation=observation,
            first=jnp.ones(num_envs, bool),
            memory=policy.init_memory(num_envs),
            episode=EpisodeStatistics(nothing, jnp.zeros(num_envs, jnp.uint32), jnp.full(num_envs, bool(stagger))),
            step_limit=limit,
            key=key,
            warmup=self._empty_warmup(policy, observation),
            warmup_memory=policy.init_memory(num_envs) if self.config.ppo.burn_in else (),
            previous=policy.nothing_before(num_envs),
        )

    def _empty_warmup(self, policy: ActorCritic, observation: Observation) -> Warmup | None:
        burn_in, num_envs = self.config.ppo.burn_in, self.config.env.num_envs
        if not burn_in:
            return None
        nothing = jnp.zeros((burn_in, num_envs), bool)
        observation = policy.observed(observation, nothing[0], policy.nothing_before(num_envs))
        return Warmup(jax.tree.map(lambda x: jnp.zeros((burn_in, *x.shape), x.dtype), observation), nothing, nothing)

    def collect(self, policy: ActorCritic, state: CollectorState) -> tuple[CollectorState, Rollout, Metrics]:
        """``num_steps`` steps of all environments; the metrics count the episodes that finished in them."""
        shape = (self.config.ppo.num_steps, self.config.env.num_envs)
        pieces = shape[0] // self.config.sequence_length if policy.is_recurrent else 1
        burn_in = self.config.ppo.burn_in
        key, key_noise, key_step, key_reset = jax.random.split(state.key, 4)
        # All random numbers of the rollout at once: a draw in every step costs more than twice as much.
        rows = (policy.actor.noise(key_noise, shape), jax.random.split(key_step, shape), jax.random.split(key_reset, shape))
        rows = jax.tree.map(lambda x: x.reshape((pieces, shape[0] // pieces, *x.shape[1:])), rows)

        def run(state: CollectorState, rows: PyTree) -> tuple[CollectorState, tuple]:
            return jax.lax.scan(lambda s, row: self._step(policy, s, *row), state, rows)

        def piece(state: CollectorState, rows: PyTree) -> tuple[CollectorState, tuple]:
            """One sequence; the memory that is kept is that before the burn-in of the next."""
            border = shape[0] // pieces - burn_in
            state, out = run(state, jax.tree.map(lambda x: x[:border], rows))
            memory = state.memory
            if burn_in:
                state, rest = run(state, jax.tree.map(lambda x: x[border:], rows))
                out = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), out, rest)
            return state, (memory, out)

        before = state.warmup_memory if burn_in else state.memory
        warmup = state.warmup
        # By the parameters that act now, so that sequences which burn in are read as they were acted on.
        state = dataclasses.replace(state, memory=warm(policy, before, warmup))
        state, (memory, out) = jax.lax.scan(piece, state, rows)
        memory, last = (
            jax.tree.map(lambda b, m: jnp.concatenate([b[None], m[:-1]]), before, memory),
            jax.tree.map(lambda m: m[-1], memory),
        )
        row, finished = jax.tree.map(lambda x: x.reshape((*shape, *x.shape[3:])), out)
        last_observation = policy.observed(state.observation, state.first, state.previous)
        last_value = policy.value(state.memory, last_observation, state.first)
        rollout = Rollout(
            **row,
            valid=jnp.ones(shape, bool),
            memory=memory,
            last_observation=last_observation,
            last_first=state.first,
            last_memory=state.memory,
            last_value=last_value,
            warmup=warmup,
        )
        if burn_in:
            late = jax.tree.map(lambda x: x[shape[0] - burn_in :], (rollout.observation, rollout.first, rollout.valid))
            state = dataclasses.replace(state, warmup=Warmup(*late), warmup_memory=last)
        metrics = _episode_metrics(**finished)
        if not self.tells_success:
            del metrics["rollout/success_rate"]
        return dataclasses.replace(state, key=key), rollout, metrics

    def _step(self, policy: ActorCritic, state: CollectorState, noise: PyTree, key_step: Array, key_reset: Array) -> tuple:
        """One step of all environments: act, step, bootstrap what was truncated, reset what ended."""
        always = jnp.ones_like(state.first)
        observed = policy.observed(state.observation, state.first, state.previous)
        memory, action, log_prob, value = policy.act(state.memory, observed, state.first, always, noise)
        env_state, observation, reward, terminated, env_truncated, success = vector.step(
            self.env, key_step, state.env_state, policy.to_space(action), state.observation, state.env_params
        )
        length, episode_return = state.episode.length + 1, state.episode.episode_return + reward
        over_time = (length >= state.step_limit) & ~terminated
        truncated = env_truncated | over_time
        done = terminated | truncated
        previous, within = policy.previous(action, reward), jnp.zeros_like(done)
        bootstrap = vector.where_any(
            truncated,
            lambda: policy.value(memory, policy.observed(observation, within, previous), within),
            jnp.zeros_like(value),
            self.seeds_axis,
        )
        row = {
            "observation": observed,
            "first": state.first,
            "action": action,
            "log_prob": log_prob,
            "value": value,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "bootstrap": bootstrap,
        }
        # With a start out of phase no first episode counts: those that end by themselves before their cut are the short ones.
        whole = done & ~state.episode.partial
        finished = {"whole": whole, "episode_return": episode_return, "length": length, "success": success}
        env_state, observation = vector.where_any(
            done, lambda: vector.reset(self.env, key_reset, state.env_params), (env_state, observation), self.seeds_axis
        )
        episode = EpisodeStatistics(
            jnp.where(done, 0.0, episode_return), jnp.where(done, 0, length), state.episode.partial & ~done
        )
        after = CollectorState(
            env_params=state.env_params,
            env_state=env_state,
            observation=observation,
            first=done,
            memory=memory,
            episode=episode,
            step_limit=jnp.where(done, jnp.uint32(self.limit), state.step_limit),
            key=state.key,
            warmup=state.warmup,
            warmup_memory=state.warmup_memory,
            previous=previous,
        )
        return after, (row, finished)

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Collect and learn once. From the first NaN or infinity on, the state stays as it was before it."""
        collector, rollout, episodes = self.collect(state.learner.policy, state.collector)
        learner, healthy, metrics = learn(state.learner, state.healthy, rollout, self.seeds_axis)
        learner, collector = kept(healthy, (learner, collector), (state.learner, state.collector))
        return TrainState(learner, collector, healthy), {**metrics, **episodes}

    def look_before(self, state: TrainState) -> tuple[Rollout, dict]:
        """The rollout that ``update`` is to collect from ``state``, which stays as it is; and what is to be seen in it."""
        with jax.default_matmul_precision(self.config.run.matmul_precision):
            _, rollout, _ = self.collect(state.learner.policy, state.collector)
            return rollout, inspection.learned_from(state.learner, rollout)

    def look_behind(self, before: TrainState, after: TrainState, rollout: Rollout) -> Float[Array, "T N"]:
        """The probability ratios of ``rollout`` to which the update from ``before`` to ``after`` has led."""
        with jax.default_matmul_precision(self.config.run.matmul_precision):
            return inspection.ratios(before.learner, after.learner.policy, rollout)

    def advance(self, state: TrainState, num_updates: Int32[Array, ""], capacity: int) -> tuple[TrainState, Metrics]:
        """``num_updates <= capacity`` updates, and their metrics in the first rows of arrays of ``capacity`` rows.

        The number is traced: one program serves every trip count, so that how a run is divided into calls never changes
        its bits.
        """
        with jax.default_matmul_precision(self.config.run.matmul_precision):
            return self._advance(state, num_updates, capacity)

    def _advance(self, state: TrainState, num_updates: Int32[Array, ""], capacity: int) -> tuple[TrainState, Metrics]:
        shapes = jax.eval_shape(lambda s: self.update(s)[1], state)
        buffers = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), shapes)

        def body(i: Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, buffers = carry
            state, metrics = self.update(state)
            return state, jax.tree.map(lambda buffer, x: buffer.at[i].set(x), buffers, metrics)

        return jax.lax.fori_loop(0, num_updates, body, (state, buffers))


def make_train(
    config: Config, env: JaxEnvironment | HostEnvironment, seeds_axis: bool = False
) -> Callable[..., tuple[TrainState, Metrics]]:
    """``train(key, hyperparameters=None) -> (TrainState, metrics)``: a whole training as one pure function, to be jitted, and
    vmapped over keys and hyperparameters. The metrics have a row for each update. It equals a run of the command line but for
    rounding: as one program, it may be fused differently. Raises ``EnvError`` for an environment of the host."""
    driver = DeviceDriver(config, env, seeds_axis)
    hold_policy(env, config)
    total = config.total_updates

    def train(key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> tuple[TrainState, Metrics]:
        return driver.advance(driver.init(key, hyperparameters), jnp.int32(total), total)

    return train


def _episode_metrics(
    whole: Bool[Array, "T N"], episode_return: Float[Array, "T N"], length: UInt32[Array, "T N"], success: Bool[Array, "T N"]
) -> Metrics:
    """Means over finished episodes only; 0 with ``rollout/episodes`` 0 where none finished."""
    return {
        "rollout/episodes": jnp.sum(whole).astype(jnp.float32),
        "rollout/return_mean": masked_mean(episode_return, whole),
        "rollout/length_mean": masked_mean(length.astype(jnp.float32), whole),
        "rollout/success_rate": masked_mean((success & whole).astype(jnp.float32), whole),
    }
