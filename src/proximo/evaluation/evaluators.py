"""What plays whole episodes with a policy that does not learn, on Gymnasium and on JAX environments."""

import abc
import dataclasses
import itertools
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, PyTree, UInt32

from proximo.collect import jax_vector
from proximo.collect.environment import LazyVectorEnvironment, vector_options
from proximo.collect.episode_tally import Episode, EpisodeTally
from proximo.collect.program_cache import TRACING, environment_key, reuse
from proximo.config import Config
from proximo.envs import Environment, GymnasiumEnvironment
from proximo.envs.gymnasium.rollout_buffer import SUCCESS, UNREPORTED
from proximo.envs.gymnasium.stepper import environment_seeds
from proximo.envs.gymnasium.vector_environment import split
from proximo.envs.level_seeds import JaxLevels, LevelRange
from proximo.envs.libraries import num_agents
from proximo.evaluation.episodes import MAX_STEPS, Episodes, environment_source, evaluation_key
from proximo.evaluation.policy import Carried, act
from proximo.networks import ActorCritic
from proximo.networks.custom.forward import Forward
from proximo.spaces import unflatten, zeros
from proximo.types import CompensatedSum, Observation, Previous, select

GYMNASIUM_TOGETHER, ARRAYS_TOGETHER = 64, 256
"""Gymnasium environments at a time: a step of the policy for 64 takes little longer than one for 8. More fit
where Gymnasium steps all of them as arrays, as for CartPole."""
JAX_TOGETHER = 512
_select = jax.jit(select)


class Evaluator(abc.ABC):
    """Plays ``episodes`` episodes with any policy; with ``part`` (i, n), only part i of n of them.

    A seed and a stream (``SELECTION_STREAM``, …) give the same episodes to every policy. A call may play
    fewer ``episodes``, a multiple of ``num_envs``. The first one compiles, unless ``compile`` was called,
    whose policy may have ``jax.ShapeDtypeStruct`` for arrays.
    """

    compiles = True
    """Whether ``compile`` has anything to compile."""

    def __init__(self, env: Any, config: Config, episodes: int, num_envs: int, part: tuple[int, int] = (0, 1)):
        self.env, self.config, self.episodes, self.num_envs = env, config, episodes, min(episodes, num_envs)
        self.own = split(range(self.num_envs), part[1])[part[0]]
        """Numbers of the environments that it plays in."""
        self.num_agents = num_agents(env)
        self.columns = len(self.own) * self.num_agents
        """Agents of these environments."""
        self._prepare()

    @abc.abstractmethod
    def _prepare(self) -> None:
        """Make what plays."""

    def __call__(
        self, policy: ActorCritic, seed: int, stream: int, deterministic: bool = True, episodes: int | None = None
    ) -> Episodes:
        if not self.own:
            return Episodes.from_rows([], 0)
        return self._play(policy, seed, stream, deterministic, min(self.episodes, episodes or self.episodes))

    def compile(self, policy: ActorCritic) -> None:
        """Compile what a call with the most probable actions needs."""
        if self.own and self.compiles:
            with TRACING:
                carried = jax.eval_shape(lambda network: Carried.initial(network, self.columns), policy)
                lowered = self._lowered(policy, carried)
            lowered.compile()

    def close(self) -> None:  # noqa: B027 (JAX environments have nothing to end)
        """End the environments."""

    @abc.abstractmethod
    def _play(self, policy: ActorCritic, seed: int, stream: int, deterministic: bool, count: int) -> Episodes:
        """Play the part of ``count`` episodes in ``own``."""

    @abc.abstractmethod
    def _lowered(self, policy: ActorCritic, carried: Carried) -> Any:
        """The lowered program of a call with the most probable actions."""


class GymnasiumEvaluator(Evaluator):
    """Plays on its own environments. Each plays the same number of episodes (or one less), so that short ones
    are not favored. The first episodes of all environments come first in the result, or, if the memory is
    kept, all episodes of the first environment."""

    def _prepare(self) -> None:
        env, config = self.env, self.config
        options = vector_options(config, lambda message: warnings.warn(message, stacklevel=2))
        workers = min(options.num_workers, len(self.own))
        # Episodes are played whole, by one group. The training has already warned of more workers than cores.
        options = dataclasses.replace(
            options, num_workers=workers, num_groups=1, stagger_steps=0, cores=max(workers, options.cores)
        )
        self.environments = LazyVectorEnvironment(env, options, self.own, 1, "for an evaluation")
        predict = getattr(Forward.of(config.network), "predict", None)
        self.compiles = predict is None

        def act_at(policy: Any, carried: Any, observation: Any, episode_start: Any, key: Any, t: Any) -> Any:
            if predict is not None:
                return carried, predict(policy, observation, key is None)
            return act(policy, carried, observation, episode_start, None if key is None else jax.random.fold_in(key, t))

        self._act: Any = jax.jit(jax.default_matmul_precision(config.run.matmul_precision)(act_at)) if self.compiles else act_at

    def _lowered(self, policy: ActorCritic, carried: Carried) -> Any:
        observation = zeros(self.env.observation_space, (self.columns,))
        return self._act.lower(policy, carried, observation, np.zeros(self.columns, bool), None, 0)

    def close(self) -> None:
        self.environments.close()

    def _play(self, policy: ActorCritic, seed: int, stream: int, deterministic: bool, count: int) -> Episodes:
        source, columns = environment_source(seed, stream), self.columns
        quotas = [count // self.num_envs + (i < count % self.num_envs) for i in range(self.num_envs)]
        played, left = [list[list[Episode]]() for _ in self.own], np.array(quotas[self.own.start : self.own.stop])
        running = [list[Episode]() for _ in self.own]
        """The episodes of agents that have ended in the running episode of each environment."""
        vector_env, max_steps = self.environments.reset(source), self.config.run.eval_max_steps or MAX_STEPS
        buffer, tally, unfinished = vector_env.buffer, EpisodeTally(len(self.own), num_agents=self.num_agents), 0
        key = None if deterministic else evaluation_key(seed, stream)
        carried, t = Carried.initial(policy, columns), 0
        while left.any():
            before, parts = carried, [leaf[0].copy() for leaf in buffer.observation]
            # An episode in which the policy acts on NaN or infinity has no return.
            tally.episode_return[buffer.valid[0] & ~_all_finite(parts, columns, np)] = np.nan
            observation = unflatten(self.env.observation_space, parts)
            carried, action = self._act(policy, before, observation, buffer.episode_start[0].copy(), key, t)
            buffer.clear()
            buffer.action[0] = np.asarray(action).reshape(buffer.action[0].shape)
            vector_env.send(0, 0)
            vector_env.receive(0, 0)
            if carried.previous is not None:
                carried = Carried(carried.memory, Previous(carried.previous.action, jax.device_put(buffer.reward[0].copy())))
            if not (valid := buffer.valid[0].copy()).all():  # padding, or a step lost with a worker
                carried = _select(valid, carried, before)
            for column in np.flatnonzero(buffer.lost[0]).tolist():  # the environment plays its episode once more
                running[column // self.num_agents] = []
            for episode in tally.add(buffer):
                running[episode.env].append(episode)
                if episode.team_return is not None:
                    if left[episode.env]:
                        played[episode.env].append(running[episode.env])
                        left[episode.env] -= 1
                    running[episode.env] = []
            for env in np.flatnonzero((tally.age() >= max_steps) & (left > 0)).tolist():
                # An endless episode cannot be reset from here: the environment plays no other one.
                played[env].append([*running[env], *tally.cut_off(env)])
                left[env], unfinished = 0, unfinished + 1
            buffer.begin_again()
            t += 1
        # A vector environment shares one seed, and an environment that was lost has another one.
        is_known = not (self.env.uses_vector_env(self.environments.options) or vector_env.restarts)
        levels, rows = self.config.env.levels, []
        env_seeds = environment_seeds(self.own.stop, source)[self.own.start :]
        for env, env_seed, episodes in zip(self.own, env_seeds, played, strict=True):
            level = LevelRange.parse(levels).draws(env_seed) if levels and is_known else itertools.repeat(None)
            for k, of_agents in enumerate(episodes):
                start = {
                    "index": k * self.num_envs + env if self.config.network.reset_memory else sum(quotas[:env]) + k,
                    "env_seed": None if k or not is_known else env_seed,
                    "level": next(level),
                }
                for episode in of_agents:
                    success = None if episode.success == UNREPORTED else episode.success == SUCCESS
                    agent = {"agent": episode.agent} if self.num_agents > 1 else {}
                    numbers = {"return": episode.episode_return, "length": episode.length, "success": success}
                    rows.append({**start, **agent, **numbers})
        return Episodes.from_rows(rows, unfinished)


class _RunningEpisodes(NamedTuple):
    """Episodes so far, one of each of ``N`` agents, after ``time`` steps."""

    time: Int32[Array, ""]
    state: jax_vector.StepState
    episode_return: CompensatedSum
    length: Int32[Array, " N"]
    success: Bool[Array, " N"]
    done: Bool[Array, " N"]


class JaxEvaluator(Evaluator):
    """Plays one episode after each reset of an environment, so that short episodes are not favored. A memory
    that is not reset is carried to the next episodes."""

    def _prepare(self) -> None:
        config = self.config
        max_episode_steps, max_steps = config.env.max_episode_steps, config.run.eval_max_steps or MAX_STEPS
        self.limit = min(max_episode_steps or max_steps, max_steps)
        self.ends = 0 < max_episode_steps <= max_steps
        """Whether ``limit`` truncates an episode, as in the training. Otherwise the episode is unfinished."""
        with_precision = jax.default_matmul_precision(config.run.matmul_precision)
        self._chunk = jax.jit(with_precision(self._play_chunk), static_argnums=3)

    def _lowered(self, policy: ActorCritic, carried: Carried) -> Any:
        return self._chunk.lower(policy, carried, np.zeros(3, np.uint32), True)

    def _play(self, policy: ActorCritic, seed: int, stream: int, deterministic: bool, count: int) -> Episodes:
        chunks, carried = [], Carried.initial(policy, self.columns)
        for i in range(-(-count // self.num_envs)):
            carried, played = self._chunk(policy, carried, np.array([seed, stream, i], np.uint32), deterministic)
            chunks.append(played)
        index = np.repeat(np.add.outer(self.num_envs * np.arange(len(chunks)), self.own).ravel(), self.num_agents)
        agent = np.tile(np.arange(self.num_agents), len(index) // self.num_agents)[index < count]
        result = {name: np.concatenate([np.asarray(c[name]) for c in chunks])[index < count] for name in chunks[0]}
        done = result.pop("done").reshape(-1, self.num_agents).all(axis=1)
        return Episodes(
            result["episode_return"],
            result["length"],
            result.get("success"),
            0 if self.ends else int((~done).sum()),
            level=result["level"].tolist() if "level" in result else None,
            index=index[index < count],
            agent=agent.tolist() if self.num_agents > 1 else None,
        )

    def _play_chunk(
        self, policy: ActorCritic, carried: Carried, numbers: UInt32[Array, "3"], deterministic: bool
    ) -> tuple[Carried, dict[str, Array]]:
        """Play an episode in each environment, with random numbers from the ``numbers`` of seed, stream and
        chunk."""
        seed, stream, chunk = numbers
        env, columns, agents = self.env, self.columns, self.num_agents

        def own(drawn: PyTree, each: int = 1) -> PyTree:  # this part's share of what all parts draw
            return jax.tree.map(lambda x: x[self.own.start * each : self.own.stop * each], drawn)

        params = jax.tree.map(jnp.asarray, env.default_params)
        key, key_reset = jax.random.split(jax.random.fold_in(evaluation_key(seed, stream), chunk))
        keys_reset = own(jax.random.split(key_reset, self.num_envs))
        env_state, observation = jax_vector.reset(env, keys_reset, params)
        state, never = jax_vector.StepState(env_state, observation, *carried), jnp.zeros(columns, bool)
        start = _RunningEpisodes(jnp.int32(0), state, CompensatedSum.zeros(columns), jnp.zeros(columns, jnp.int32), never, never)

        def play(now: _RunningEpisodes) -> _RunningEpisodes:
            """A step of all environments whose episode is not done."""
            key_act, key_step = jax.random.split(jax.random.fold_in(key, now.time))
            episode_start = jnp.broadcast_to(now.time == 0, (columns,))
            # An episode in which the policy acts on NaN or infinity has no return.
            or_nan = jnp.where(_all_finite(now.state.observation, columns, jnp), 0.0, jnp.nan)
            noise = None if deterministic else own(policy.actor.noise(key_act, (self.num_envs * agents,)), agents)
            keys_step = own(jax.random.split(key_step, self.num_envs))
            after, step, success = jax_vector.policy_step(
                env, policy, now.state, episode_start, ~now.done, noise, keys_step, params
            )
            done = now.done | step["terminated"] | step["truncated"]
            is_known = now.done
            if success is not None and success.shape != done.shape:  # one for all agents, when the last episode ends
                success, is_known = (jnp.repeat(x, agents) for x in (success, jax_vector.by_env(now.done, env).all(axis=1)))
            if agents > 1:  # the policy acts on zeros for absent agents
                after = after._replace(
                    observation=select(done, jax.tree.map(jnp.zeros_like, after.observation), after.observation)
                )
            return _RunningEpisodes(
                now.time + 1,
                after._replace(previous=select(now.done, now.state.previous, after.previous)),
                now.episode_return.plus(jnp.where(now.done, 0.0, step["reward"] + or_nan)),
                now.length + ~now.done,
                now.success if success is None else jnp.where(is_known, now.success, success),
                done,
            )

        end = jax.lax.while_loop(lambda now: (now.time < self.limit) & ~now.done.all(), play, start)
        result: dict[str, PyTree] = {"episode_return": end.episode_return.value, "length": end.length, "done": end.done}
        if jax_vector.info_shapes(env).get("success") is not None:
            # An episode that is cut off counts as no success.
            result["success"] = end.success if self.ends else end.success & end.done
        if isinstance(env, JaxLevels):
            result["level"] = jnp.repeat(jax.vmap(env.level)(keys_reset), agents)
        return Carried(end.state.memory, end.state.previous), result


def _all_finite(observation: Observation, columns: int, xp: Any) -> Bool[Array, " N"]:
    """Whether all floating-point numbers in the observation of each agent are finite; ``xp`` is NumPy or JAX's."""
    finite = xp.ones(columns, bool)
    for x in jax.tree.leaves(observation):
        if xp.issubdtype(x.dtype, xp.floating):
            finite &= xp.isfinite(x).reshape(columns, -1).all(axis=1)
    return finite


def make_evaluator(
    env: Environment, config: Config, episodes: int, num_envs: int | None = None, part: tuple[int, int] = (0, 1)
) -> Evaluator:
    """An evaluator for any policy of ``config``; for JAX environments, one that this process has already
    compiled if it fits.

    ``num_envs`` environments play at a time. None: as many as in the training. 0: a number that runs fast, or
    as many as in the training if the memory is kept across episodes. For JAX environments, None means 0.
    """
    keeps_memory = not config.network.reset_memory
    if isinstance(env, GymnasiumEnvironment):
        if num_envs == 0 and not keeps_memory:
            steps_arrays = env.make is not None and env.make_vector is not None
            num_envs = max(ARRAYS_TOGETHER if steps_arrays else GYMNASIUM_TOGETHER, config.env.num_envs)
        return GymnasiumEvaluator(env, config, episodes, num_envs or config.env.num_envs, part)
    num_envs = num_envs or (config.env.num_envs if keeps_memory else JAX_TOGETHER)
    limits = config.env.max_episode_steps, config.run.eval_max_steps
    key = "evaluator", environment_key(env), *limits, config.run.matmul_precision, episodes, num_envs, part
    return reuse(key, lambda: JaxEvaluator(env, config, episodes, num_envs, part))
