"""``PPO``: a policy that learns, acts, is judged and saved, in this process; nothing is printed or written unless asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import weakref
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.checks import quick_check
from proximo.config import Config, override
from proximo.drivers.learning import hold_policy
from proximo.envs import HostEnvironment, JaxEnvironment
from proximo.envs.own import from_object
from proximo.errors import ConfigError
from proximo.run import checkpoint, directory, retention
from proximo.run.callbacks import Listeners, check
from proximo.run.episodes import Episodes
from proximo.run.files import plain
from proximo.run.interrupts import Interrupts
from proximo.run.judgement import judge
from proximo.run.member import Member
from proximo.run.observations import arranged, is_single
from proximo.run.policy import Policy, check_finite
from proximo.run.program import HostProgram, Program, copy_of, make_program, with_total_steps
from proximo.run.progress import Reporter
from proximo.run.reuse import environment, hold_settings, preprocessing_of
from proximo.run.saving import save_run
from proximo.run.settings import make_config
from proximo.run.sinks import METRICS, read_rows
from proximo.run.training import Training
from proximo.run.validation import validate
from proximo.runtime import prepare_jax
from proximo.signatures import answered
from proximo.spaces import Box, Dict, Space, Tuple, from_any
from proximo.types import TrainState

OF_RUNS = (
    "seeds", "seeds_mode", "runs_dir", "name", "checkpoint_every", "keep_checkpoints", "tensorboard", "track", "histograms", "video_every",
)  # fmt: skip
"""Settings of what ``proximo.train`` writes."""


class _Kept(Member):
    """The seed of a ``PPO``: its rows are kept in memory."""

    def __init__(self, config: Config, listeners: Listeners, rows: list[dict[str, Any]]):
        super().__init__(config, listeners)
        self.rows = rows

    def write(self, step: int, row: dict[str, float]) -> None:
        self.rows.append({"step": step, **plain(row)})


class _Noting(Reporter):
    """Keeps what a training warns of."""

    def __init__(self, warnings: list[str]):
        self._warnings = warnings

    def warned(self, message: str) -> None:
        if message not in self._warnings:
            self._warnings.append(message)


class _Turn:
    """Exclusive right of one call to change an agent, so that no call overwrites the result of another. Raises ``ConfigError``."""

    _last: ClassVar[weakref.WeakKeyDictionary[PPO, _Turn]] = weakref.WeakKeyDictionary()
    _lock = threading.Lock()

    def __init__(self, agent: PPO):
        with self._lock:
            last = self._last.get(agent)
            if last is not None and last.busy:
                raise ConfigError(
                    "This agent is already learning in another call or thread: wait until that call ends, or use one agent for each thread."
                )
            self._last[agent] = self
            self.busy = True

    def go_on(self, agent: PPO) -> None:
        """Continue after a pause. Raises ``ConfigError`` if another call has changed the agent since."""
        with self._lock:
            if self._last[agent] is not self:
                raise ConfigError("This agent has learned in another call since this call paused: start a new call.")
            self.busy = True


def _hold(settings: dict[str, Any]) -> None:
    """Raise ``ConfigError`` for settings that only a run on the disk has."""
    for name in settings:
        if name in OF_RUNS:
            raise ConfigError(f"{name} is for runs that are written, as by proximo.train: a PPO object writes nothing by itself.")


def _made(env: Any, settings: dict[str, Any], preset: bool) -> tuple[JaxEnvironment | HostEnvironment, Config]:
    """The environment that ``env`` means, and the settings for it."""
    if isinstance(env, str):
        config = make_config(env, settings, preset=preset)
        return environment(config), config
    config = make_config("<>", settings, preset=False)
    env_id, made = from_object(env, config.env.env_settings, preprocessing_of(config))
    hold_settings(config, made)
    return made, override(config, {"id": env_id})


def _with_env(config: Config, env: Any, env_settings: dict[str, Any]) -> tuple[JaxEnvironment | HostEnvironment, Config]:
    """Another environment in place of that of ``config``, with the same number, limits and preprocessing."""
    group = dataclasses.asdict(config.env)
    settings = {name: group[name] for name in group if name not in ("id", "env_settings")} | {"env_settings": env_settings}
    made, named = _made(env, settings, preset=False)
    return made, dataclasses.replace(config, env=named.env)


def _unbounded(space: Space) -> Space:
    """``space`` without the bounds of its numbers, which no encoder reads."""
    if isinstance(space, Box):
        return dataclasses.replace(space, low=-math.inf, high=math.inf)
    if isinstance(space, Dict):
        return Dict(tuple((name, _unbounded(part)) for name, part in space.spaces))
    return Tuple(tuple(map(_unbounded, space.spaces))) if isinstance(space, Tuple) else space


class PPO:
    """Proximal Policy Optimization on an environment.

        agent = proximo.PPO("CartPole-v1", num_envs=8).learn(100_000)
        action, memory = agent.predict(observation, memory, first)

    ``env``: an id (with its preset, unless ``preset`` is false), an environment in JAX, or a class or function that makes one of either kind.
    ``settings``: those of ``proximo train``, by name. Raises ``ConfigError`` for a setting that is unknown or out of range, ``EnvError`` for
    what is no environment.
    """

    config: Config
    """The resolved settings."""
    step: int
    """Environment steps learned from."""
    history: list[dict[str, Any]]
    """Rows of metrics, ``{"step": …, name: value}``, by the names of ``metrics.jsonl``."""
    warnings: list[str]
    """What is odd about the environment, the checkpoint that was loaded or the trainings since, in sentences; what a training of a ``reporter``'s
    own warns of is told to that."""

    @answered
    def __init__(self, env: Any, *, preset: bool = True, seed: int = 0, **settings: Any):
        prepare_jax()
        _hold(settings)
        made, config = _made(env, {**settings, "seed": seed}, preset)
        self._set_up(made, config)
        self.warnings = quick_check(made, config.env.id)

    def _set_up(self, env: JaxEnvironment | HostEnvironment, config: Config) -> None:
        """Nothing learned yet."""
        hold_policy(env, config)
        self._env, self.config = env, config
        self.warnings, self.step, self.history = [], 0, []
        self._state: TrainState | None = None
        self._evaluation: dict[str, Any] | None = None

    @property
    def env(self) -> JaxEnvironment | HostEnvironment:
        """The environment that it learns on."""
        return self._env

    @property
    def policy(self) -> Policy:
        """What acts: to be called with memory, observations and flags, exported, or taken into JAX programs (``policy.network``)."""
        state = self._begun()
        return Policy(state.learner.policy, self._env, self.config, self.step)

    def __repr__(self) -> str:
        return f"PPO({self.config.env.id!r} at step {self.step})"

    @answered
    def learn(self, total_steps: int, *, callbacks: Sequence[Any] = (), reporter: Reporter | None = None) -> PPO:
        """Learn from ``total_steps`` environment steps more, in whole updates; returns itself.

        Schedules run from the first step to the last of this call: a second call stretches them over what it adds. Environments in JAX go on
        where they stood, Gymnasium's begin anew. ``callbacks``: as in ``proximo.train``; ``reporter``: who is told of progress. Ctrl-C raises
        ``KeyboardInterrupt``, and what was learned until then stays. Raises ``TrainingError`` if NaN or infinity ends it, and
        ``ConfigError`` while another call learns with this object. Several threads may ``predict`` at once.
        """
        reporter = reporter or _Noting(self.warnings)
        turn = _Turn(self)
        try:
            with (
                Interrupts(reporter.stopping, reporter.owns_process) as interrupts,
                contextlib.closing(self._calls(total_steps, interrupts, callbacks, reporter, None)) as calls,
            ):
                for _ in calls:
                    pass
        finally:
            turn.busy = False
        return self

    def calls(
        self,
        total_steps: int,
        interrupts: Interrupts,
        *,
        callbacks: Sequence[Any] = (),
        reporter: Reporter | None = None,
        most_updates: int | None = None,
    ) -> Iterator[None]:
        """``learn``, at the pace of another program: yields before each call of the compiled one, of ``most_updates`` at most, when this object has
        all that was learned until then. Closed there, it ends there. ``interrupts`` are heeded while they are entered, which is up to the caller.
        Raises ``ConfigError`` while another call learns, or if another call has learned since this one yielded.
        """
        turn, reporter = _Turn(self), reporter or _Noting(self.warnings)
        try:
            with contextlib.closing(self._calls(total_steps, interrupts, callbacks, reporter, most_updates)) as calls:
                for _ in calls:
                    turn.busy = False
                    yield
                    turn.go_on(self)
        finally:
            turn.busy = False

    def _calls(
        self, total_steps: int, interrupts: Interrupts, callbacks: Sequence[Any], reporter: Reporter, most_updates: int | None
    ) -> Generator[None]:
        listened = check(callbacks, bool(self.config.run.eval_episodes))
        if isinstance(total_steps, float) and total_steps.is_integer():
            total_steps = int(total_steps)
        if isinstance(total_steps, bool) or not isinstance(total_steps, int | np.integer) or total_steps < self.config.batch_size:
            raise ConfigError(
                f"total_steps = {total_steps!r}: expected a whole number from {self.config.batch_size} on, the steps of one update "
                f"(num_envs {self.config.env.num_envs} × num_steps {self.config.ppo.num_steps})."
            )
        config = validate(override(self.config, {"total_steps": self.step + int(total_steps)}))
        program = make_program(config, self._env, stacked=False)
        member = _Kept(config, Listeners(listened), self.history)
        before = self._state, self.step, self.config
        try:
            training = Training(program, [member], interrupts, reporter, None, most_updates)
            calls = training.calls(lambda: self._first(program, config), self.step)
            goes_on = True
            while goes_on:
                try:
                    goes_on = next(calls, False) is None
                finally:
                    # A call that was cut short has used up the state of which it was not known that it would take long.
                    self._take(training, config, before)
                if goes_on:
                    yield
        finally:
            program.close()
        if member.failure is not None:
            raise member.failure
        if interrupts.requested is not None:
            raise KeyboardInterrupt

    def _first(self, program: Program | HostProgram, config: Config) -> TrainState:
        """The state that a session begins with; a copy, because the program uses it up."""
        if self._state is None:
            return program.start([config.run.seed])
        return program.stack([with_total_steps(copy_of(self._state), config)])

    def _take(self, training: Training, config: Config, before: tuple[TrainState | None, int, Config]) -> None:
        """What a session has led to; where nothing stands, what was ``before`` it."""
        if training.standing is None:
            self._state, self.step, self.config = before
            return
        state, updates = training.standing
        self._state, self.step, self.config = state, updates * config.batch_size, config
        self._evaluation = training.members[0].last_evaluation or self._evaluation

    def _begun(self) -> TrainState:
        """The state, made now where nothing was learned yet."""
        if self._state is None:
            program = make_program(self.config, self._env, stacked=False)
            self._state = program.start([self.config.run.seed])
            program.close()
        return self._state

    @answered
    def predict(
        self,
        observation: Any,
        memory: Any = None,
        first: Any = None,
        *,
        deterministic: bool = True,
        key: Key[Array, ""] | None = None,
        reward: Any = None,
    ) -> tuple[np.ndarray, Any]:
        """(action, memory) for one observation, or for N that are stacked.

        ``memory``: what the last call gave; None where an episode begins. ``first``: where episodes begin (one flag, or N); by default
        everywhere without a memory and nowhere with one. ``deterministic``: the most probable action; else one that is sampled by ``key``.
        ``reward``: the last one, for policies that observe it. Raises ``ConfigError`` for what does not fit.
        """
        if not deterministic and key is None:
            raise ConfigError("deterministic = False needs a key to sample by, as key=jax.random.key(0), another one each time.")
        policy = self.policy
        space = policy.seen(observation)
        observation = arranged(observation, space)
        alone = is_single(observation, space)
        if alone:
            observation = jax.tree.map(lambda x: x[None], observation)
            first, reward = (x if x is None else np.reshape(x, (1,)) for x in (first, reward))
        count = len(jax.tree.leaves(observation)[0])
        if first is None:
            first = np.full(count, memory is None)
        memory = policy.init_memory(count) if memory is None else memory
        memory, action = policy(memory, observation, first, reward, None if deterministic else key)
        return (action[0] if alone else action), memory

    @answered
    def evaluate(
        self,
        episodes: int = 100,
        *,
        stochastic: bool = False,
        seed: int = 0,
        levels: str | None = None,
        env_settings: dict[str, Any] | None = None,
        num_envs: int = 0,
    ) -> Episodes:
        """Play whole episodes on seeds that training does not use, as ``proximo.evaluate``; ``.summary()`` has the figures."""
        how = "sampled" if stochastic else "greedy"
        judged = judge(self.policy, episodes, [how], seed=seed, levels=levels, env_settings=env_settings, num_envs=num_envs)
        return judged.episodes[how]

    def set_env(self, env: Any, **env_settings: Any) -> PPO:
        """Learn on another environment of the same spaces from now on: an id, or an object as ``PPO`` takes it. Raises ``ConfigError`` where
        the spaces are others. The learned parameters stay. New episodes begin with empty memories, and the stream of random numbers continues."""
        turn = _Turn(self)
        try:
            return self._switch_to(*_with_env(self.config, env, env_settings))
        finally:
            turn.busy = False

    def _switch_to(self, made: JaxEnvironment | HostEnvironment, config: Config) -> PPO:
        for role in ("observation", "action"):
            ours, theirs = (from_any(getattr(e, f"{role}_space"), role) for e in (self._env, made))
            alike = _unbounded(ours) == _unbounded(theirs) if role == "observation" else ours == theirs
            if not alike:
                raise ConfigError(f"The {role} space of {config.env.id} is {theirs}, where this policy has {ours}.")
        hold_policy(made, config)
        self.warnings = quick_check(made, config.env.id)
        if self._state is not None:
            program = make_program(config, made, stacked=False)
            self._state = program.with_new_episodes(self._state)
            program.close()
        self._env, self.config, self._evaluation = made, config, None  # the last evaluation was on the other environment
        return self

    def save(self, folder: str | Path) -> Path:
        """Write a run directory, which ``proximo.load`` and every verb of the command line take; what was saved there before is replaced,
        and what was made of it (``export``, ``videos``, ``report.*``) removed.

        Raises ``ConfigError`` for a folder of other things, ``CheckpointError`` where the disk does not take it.
        """
        return save_run(Path(folder), self.config, self.step, self._begun(), self._evaluation, self.history)


@answered
def load(run: str | Path, *, env: Any = None, runs_dir: str = "runs", **own: Any) -> PPO:
    """A ``PPO`` that goes on where ``run`` stands: what ``PPO.save`` has written, or a run of ``proximo train`` (a path, a name or ``last``, with
    ``@best`` or ``@STEP`` behind it).

    ``env``: the environment, where it was an object; ``own``: other objects that the run was trained with, as ``encoder=MyEncoder``. Raises ``CheckpointError`` for what is no run, ``EnvError`` where ``env`` is missing.
    """
    prepare_jax()
    path, which = directory.resolve_one(str(run), Path(runs_dir))
    defaults = Config().run
    config = override(directory.read_config(path, own), {name: getattr(defaults, name) for name in OF_RUNS})
    made, config = (environment(config), config) if env is None else _with_env(config, env, config.env.env_settings)
    agent = PPO.__new__(PPO)
    agent._set_up(made, config)
    found, agent.warnings = retention.find(path, which)
    program = make_program(agent.config, agent._env, stacked=False)
    state = jax.tree.map(jnp.asarray, checkpoint.load(found, program.template()))
    check_finite(found, state.learner.policy, config)
    agent._state = state
    program.close()
    agent.step = int(found.name)
    agent.history = [row for row in read_rows(path / METRICS) if row["step"] <= agent.step]
    agent._evaluation = checkpoint.read_summary(found, "evaluation")
    return agent
