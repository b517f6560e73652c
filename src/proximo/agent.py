"""``PPO``: an agent that learns, acts, is evaluated and saved in this process, and writes files only when asked.

Like the command line, this module may import all others: ``export``, ``report`` and ``plot`` import their packages when they are called.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import operator
import threading
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import jax
import numpy as np
from jaxtyping import Array, Key

from proximo.checks import check_before_training
from proximo.collect.devices import on_one_device, with_available_devices, with_device_number
from proximo.collect.environment import (
    check_same_spaces,
    check_settings,
    environment,
    evaluation_during_training,
    preprocessing_of,
)
from proximo.collect.learning import check_policy
from proximo.config import Config, override
from proximo.config.loading import Layer, resolve, resume_warnings, with_given
from proximo.config.schema import RUN_DIRECTORY
from proximo.config.typed_settings import AgentSettings
from proximo.config.validation import validate
from proximo.distributions import Distribution
from proximo.envs.custom import from_object, is_vectorized, makes_environments
from proximo.envs.libraries import num_agents
from proximo.envs.protocol import Environment
from proximo.errors import ConfigError, is_number
from proximo.evaluation.episodes import PREDICTION_STREAM, Episodes, evaluation_key
from proximo.evaluation.evaluate import check_number, evaluate
from proximo.evaluation.policy import Carried, Policy, check_finite
from proximo.jax_setup import prepare_jax
from proximo.processes.peers import current
from proximo.rendering import watching, window
from proximo.settings import lists_settings, make_config, with_defaults
from proximo.storage import run_directory, run_lookup
from proximo.storage.run_directory import METRICS, save_run
from proximo.tracking.progress import display, in_notebook, showing_progress
from proximo.tracking.reporter import Reporter
from proximo.tracking.run_trackers import read_rows
from proximo.training.backend import Backend, EvaluatedOn, copy_of
from proximo.training.backends import make_backend
from proximo.training.callbacks import callbacks_of_seeds
from proximo.training.events import SHARE
from proximo.training.interrupts import Interrupts
from proximo.training.loop import Training
from proximo.training.run_summary import run_summary
from proximo.training.seed_run import InMemoryRows, SeedRun
from proximo.types import TrainState, int_of_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from proximo.export import ExportResult
    from proximo.report import Report


_in_use: weakref.WeakSet[PPO] = weakref.WeakSet()
_lock = threading.Lock()


@contextlib.contextmanager
def exclusive_use(agent: PPO) -> Iterator[None]:
    """Context manager: only this call may change ``agent``, so that no call overwrites the result of another.
    Raises ``ConfigError`` if another call is changing it."""
    with _lock:
        if agent in _in_use:
            raise ConfigError(
                "This agent is already learning in another call or thread: wait until that call ends, or use one agent for each thread."
            )
        _in_use.add(agent)
    try:
        yield
    finally:
        _in_use.discard(agent)


class _WarningList(Reporter):
    def __init__(self, warnings: list[str]):
        self._warnings = warnings

    def warned(self, message: str) -> None:
        if message not in self._warnings:
            self._warnings.append(message)


def _object(env: Any) -> Any:
    """What the user gave as environment, if it is not an id."""
    return None if isinstance(env, str) else env


@lists_settings(AgentSettings)
class PPO:
    """An agent that learns with Proximal Policy Optimization.

        agent = proximo.PPO("CartPole-v1", num_envs=8).learn(100_000)
        print(agent.evaluate(100).summary()["return_mean"])
        agent.save("models/cartpole")  # proximo.load("models/cartpole") loads it, to act or to learn on
        action, memory = agent.predict(observation, agent.policy.init_memory())

    The agent writes files only when asked. Use ``proximo.train`` for a run directory with checkpoints and metrics.

    Args:
        env: an id; an environment, which is copied; a class of environments; a function that returns an environment; or a function
            with an argument ``num_envs`` that returns a Gymnasium ``VectorEnv``.
        eval_env: environment of the evaluations in ``learn``, with the same spaces: an id or an object like ``env``, with the
            parameters ``eval_env_settings``. None: ``env``.
        preset: whether to start from the preset of the id, or else from the defaults for the kind of environment.
        verbose: 0: ``learn`` shows no progress; 1 or 2: it does so on a terminal and in a notebook.
        settings: settings of ``proximo train`` by name, for example ``num_envs=16``, ``memory="gru"``.

    Raises:
        ConfigError: a setting is unknown or out of range, or does not fit the environment.
        EnvError: an environment is unknown, is not an environment, or cannot be copied.
    """

    config: Config
    """The resolved settings."""
    step: int
    """Environment steps learned from."""
    history: list[dict[str, Any]]
    """Rows of metrics, ``{"step": …, name: value}``, with the names of ``metrics.jsonl``."""
    warnings: list[str]
    """Warnings about the environment, the loaded checkpoint, and trainings without a ``reporter``."""
    verbose: int
    """0: ``learn`` shows no progress by itself."""

    def __init__(
        self, env: Any, *, eval_env: Any = None, preset: bool = True, verbose: int = 1, **settings: Unpack[AgentSettings]
    ):
        prepare_jax()
        by_id = {"eval_env": eval_env} if isinstance(eval_env, str) else {}
        made, config = make_environment(env, {**settings, **by_id}, preset)
        self._set_up(made, with_device_number(config), env, None if by_id else eval_env, verbose)
        self.warnings = check_before_training(self._env, self.config, self._shapes, self._evaluated_on)

    def _set_up(self, env: Environment, config: Config, given: Any, eval_env: Any, verbose: int) -> None:
        """Initialize an agent that has learned nothing. ``given`` is what ``env`` was made from."""
        self._shapes = check_policy(env, config)
        check_number("verbose", int(verbose) if isinstance(verbose, bool) else verbose, 0, 2)
        self.verbose = int(verbose)
        self._env, self._given, self._given_eval_env = env, _object(given), eval_env
        self.config, self._evaluated_on = self._evaluations(config, env, self._given)
        self.warnings, self.step, self.history = [], 0, []
        self._state: TrainState | None = None
        self._taken = 0  # the update after which ``_state`` was taken from the training that runs now
        self._predictions = itertools.count()  # atomic: several threads may predict at once
        self._evaluation: dict[str, Any] | None = None
        self._best: dict[str, Any] | None = None  # the best evaluation of all calls of ``learn``
        self._made_policy: tuple[tuple[Any, ...], Policy] | None = None
        """The parts of ``policy``, and the object, so that a loop over ``predict`` does not prepare it in each step."""

    def _evaluations(self, config: Config, env: Environment, given: Any) -> tuple[Config, EvaluatedOn]:
        """Settings to train on ``env``, made from ``given``, and the evaluation environment with its settings."""
        other, env_settings, own = self._given_eval_env, None, config.run.eval_env_settings
        if other is None and not config.run.eval_env and given is not None and own:
            other, env_settings = given, {**config.env.env_settings, **own}
        evaluation = evaluation_during_training(config, env, other, env_settings)
        if self._given_eval_env is not None:
            config = validate(override(config, {"eval_env": evaluation[1].env.id}))
        return config, evaluation

    @property
    def env(self) -> Environment:
        """The environment that the agent learns on."""
        return self._env

    @property
    def policy(self) -> Policy:
        """The current policy, which can act, be exported, or be used in JAX programs."""
        parts = self._current_state().learner.policy, self._env, self.config, self.step
        made = self._made_policy
        if made is None or any(map(operator.is_not, parts, made[0])):
            made = self._made_policy = parts, Policy(on_one_device(parts[0]), *parts[1:])
        return made[1]

    def __repr__(self) -> str:
        return f"PPO({self.config.env.id!r} at step {self.step})"

    def learn(
        self, total_steps: int, *, callbacks: Sequence[Any] = (), reporter: Reporter | None = None, progress: bool | None = None
    ) -> PPO:
        """Learn from further environment steps.

        Schedules run from the agent's first step to the last step of this call, so a second call stretches them. JAX environments
        continue their episodes, Gymnasium environments start new ones. Ctrl-C raises ``KeyboardInterrupt``; the agent keeps what it
        has learned. Other threads may call ``predict`` at the same time.

        Args:
            total_steps: environment steps of this call, at least the steps of one update; rounded down to whole updates.
            callbacks: objects that receive progress and may stop the training, see ``proximo.training.callbacks``.
            reporter: receives progress and warnings; by default warnings go to ``agent.warnings``.
            progress: whether to show steps, returns and speed, as a bar or as a line every ten seconds. None: only on a terminal
                and in a notebook, unless ``verbose`` is 0 or there is a ``reporter``.

        Returns:
            The agent itself.

        Raises:
            ConfigError: ``total_steps`` or a callback is invalid, or another call is learning with this agent.
            EnvError, TrainingError: the environment fails, or NaN or infinity ends the training.
        """
        if progress is None and not self.verbose:
            progress = False
        with (
            exclusive_use(self),
            showing_progress(reporter, progress, _WarningList(self.warnings)) as reporter,
            Interrupts(reporter.stopping, reporter.owns_process) as interrupts,
            contextlib.closing(self._calls(total_steps, interrupts, callbacks, reporter, None)) as calls,
        ):
            for _ in calls:
                pass
        return self

    def _calls(
        self, total_steps: int, interrupts: Interrupts, callbacks: Sequence[Any], reporter: Reporter, max_updates: int | None
    ) -> Generator[None]:
        current().require_one("PPO.learn")
        [own] = callbacks_of_seeds(callbacks, self.config)
        if not is_number(total_steps) or not total_steps >= self.config.batch_size or total_steps % 1:
            raise ConfigError(
                f"total_steps = {total_steps!r}: expected a whole number of at least {self.config.batch_size}, the steps of one update "
                f"(num_envs {self.config.env.num_envs} × num_steps {self.config.ppo.num_steps})."
            )
        config = validate(override(self.config, {"total_steps": self.step + int(total_steps)}))
        backend = make_backend(config, self._env, evaluation=self._evaluated_on)
        seed_run = SeedRun(config)
        seed_run.callbacks, seed_run.trackers, seed_run.best = own, InMemoryRows(self.history), self._best
        seed_run.evaluation_steps = int(SHARE * self.step)  # the steps of earlier calls allow no evaluations in this one
        try:
            reporter.started(config, [], run_summary(backend))
            training = Training(backend, [seed_run], interrupts, reporter, None, max_updates)
            take = training.after_call = functools.partial(self._take, training, config)
            calls = training.calls(lambda: self._first_state(backend), self.step)
            while True:
                try:
                    next(calls)
                except StopIteration:
                    break
                finally:
                    take()
                yield
        finally:
            backend.close()
        if seed_run.failure is not None:
            raise seed_run.failure
        if interrupts.requested is not None:
            raise KeyboardInterrupt

    def _first_state(self, backend: Backend) -> TrainState:
        """The state at the start of a training; a copy, because the backend uses it up."""
        if self._state is None:
            return backend.start([self.config.run.seed])
        # NaN or infinity has frozen the state before the update that failed. The agent learns on in new episodes.
        state = self._state if self._state.healthy else backend.with_new_episodes(self._state)
        return backend.join([copy_of(state)])

    def _take(self, training: Training, config: Config) -> None:
        """Take what a training has learned so far, as far as it can be saved."""
        self._evaluation = training.seed_runs[0].last_evaluation or self._evaluation
        self._best = training.seed_runs[0].best
        now = training.snapshot
        if now is None or (self.config is config and now.update == self._taken):
            return
        # A copy, because the next call may use the state up, while other threads and callbacks read the agent's.
        state = copy_of(now.state) if training.backend.donates else now.state
        self._state, self.config, self._taken = state, config, now.update
        self.step = now.step if state.healthy else int_of_steps(state.learner.steps)

    def _backend(self) -> contextlib.closing[Backend]:
        return contextlib.closing(make_backend(self.config, self._env, evaluation=self._evaluated_on))

    def _current_state(self) -> TrainState:
        """The state; an agent that has learned nothing makes its first one now."""
        if self._state is None:
            with self._backend() as backend:
                self._state = backend.start([self.config.run.seed])
        return self._state

    def predict(
        self,
        observation: Any,
        memory: Carried | None = None,
        episode_start: Any = None,
        *,
        action_mask: Any = None,
        deterministic: bool = True,
        key: Key[Array, ""] | None = None,
        reward: Any = None,
    ) -> tuple[np.ndarray, Carried]:
        """Choose the action for one observation, or for N stacked observations, with the current policy.

        ``Policy.predict`` explains arguments, results and errors. Without a ``key``, the agent uses another key in each call, which
        follows from ``seed`` and the number of earlier calls. Several threads may call it at once.
        """
        if key is None and not deterministic:
            key = jax.random.fold_in(evaluation_key(self.config.run.seed, PREDICTION_STREAM), next(self._predictions))
        arguments = {"action_mask": action_mask, "deterministic": deterministic, "key": key, "reward": reward}
        return self.policy.predict(observation, memory, episode_start, **arguments)

    def forward(
        self,
        observation: Any,
        memory: Carried | None = None,
        episode_start: Any = None,
        *,
        action_mask: Any = None,
        reward: Any = None,
    ) -> tuple[Distribution, Array]:
        """Compute the distribution of the action and the value. ``Policy.forward`` explains arguments and results."""
        return self.policy.forward(observation, memory, episode_start, action_mask=action_mask, reward=reward)

    def evaluate(
        self,
        episodes: int = 100,
        *,
        deterministic: bool = True,
        seed: int = 0,
        levels: str | None = None,
        env_settings: dict[str, Any] | None = None,
        num_envs: int = 0,
        env: Any = None,
        against: Any = None,
    ) -> Episodes:
        """Play whole episodes on environment seeds that training does not use, as ``proximo.evaluate`` does.

        Args:
            episodes: number of episodes, 1 or more.
            deterministic: whether to take the most probable action; otherwise actions are sampled.
            seed: seed of the episodes, 0 or more.
            levels: range of level seeds to play, for example ``"1000:1050"``; None: as in the training.
            env_settings: parameters of the environment that differ from the training's.
            num_envs: environments that are played at the same time; 0: chosen automatically.
            env: another environment with the same spaces, as ``PPO`` takes it; None: the training's.
            against: the opponent in a game: ``"random"`` (the default), or an agent, a policy or a run.

        Returns:
            The episodes. ``.summary()`` returns their mean return and other statistics.

        Raises:
            ConfigError: an argument is out of range, or the spaces are not those of the policy.
            EnvError: ``env`` is unknown, or is no environment.
        """
        if env is None and self._given is not None and (env_settings or levels is not None):
            env, env_settings = self._given, {**self.config.env.env_settings, **(env_settings or {})}
        where = {"levels": levels, "env_settings": env_settings, "num_envs": num_envs, "env": env, "against": against}
        return evaluate(self.policy, episodes, deterministic=deterministic, seed=seed, **where)

    def render(
        self,
        episodes: int = 1,
        *,
        deterministic: bool = True,
        seed: int = 0,
        max_steps: int | None = None,
        fps: float | None = None,
    ) -> watching.Clip:
        """Record episodes of the current policy. A notebook displays the result.

        Args:
            episodes: number of episodes, 1 or more.
            deterministic: whether to take the most probable action; otherwise actions are sampled.
            seed: seed of the episodes, 0 or more. They are the first ones of ``evaluate`` with this seed.
            max_steps: steps after which an episode is cut off; None: 10,000.
            fps: frames per second; None: the environment's.

        Returns:
            The video. ``.save(path)`` writes it to a file.

        Raises:
            ConfigError: an argument is out of range.
            EnvError: the environment cannot be drawn.
            VideoError: there is no ffmpeg.
        """
        shown = {"episodes": episodes, "deterministic": deterministic, "seed": seed, "max_steps": max_steps, "fps": fps}
        return watching.make_clip(watching.acting(self.policy, **shown))

    def watch(
        self,
        path: str | Path | None = None,
        *,
        episodes: int = 3,
        deterministic: bool = True,
        seed: int = 0,
        max_steps: int | None = None,
        fps: float | None = None,
    ) -> Path | None:
        """Show episodes of the current policy in a notebook or a window. Without a display, write a file.

        Args:
            path: a file to write instead, which ends in ``.mp4`` or ``.gif``.
            episodes: as in ``render``.
            deterministic: as in ``render``.
            seed: as in ``render``.
            max_steps: as in ``render``.
            fps: as in ``render``.

        Returns:
            The file that was written, by default ``watch-STEP.mp4`` in the working folder; None if the episodes were shown.

        Raises:
            ConfigError: an argument is out of range.
            EnvError: the environment cannot be drawn.
            VideoError: the file cannot be written, or there is no ffmpeg.
        """
        shown = {"episodes": episodes, "deterministic": deterministic, "seed": seed, "max_steps": max_steps, "fps": fps}
        subject = watching.acting(self.policy, **shown)
        if path is None and in_notebook():
            display({"text/html": watching.make_clip(subject)._repr_html_()})
            return None
        if path is None and window.has_display():
            watching.show(subject)
            return None
        file = Path(f"watch-{self.step}.mp4" if path is None else path)
        watching.record(subject.play(), [file], subject.rate)
        return file

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the mean returns of training episodes and evaluations over the steps of ``history``.

        Args:
            path: a file to write in addition, for example ``"curve.png"``.

        Returns:
            The figure, which a notebook displays.

        Raises:
            ConfigError: ``history`` has no return, or ``path`` has another ending than those of pictures.
        """
        from proximo.report.figures import draw_learning_curve

        return draw_learning_curve(self.history, f"{self.config.env.id}, seed {self.config.run.seed}", path)

    def report(self, folder: str | Path) -> Report:
        """Save the agent to ``folder`` and write ``report.html``, ``report.png`` and ``report.csv`` there, as ``proximo report`` does.

        Args:
            folder: as in ``save``.

        Returns:
            The paths of the files, and warnings.

        Raises:
            ConfigError: ``folder`` contains other files.
            CheckpointError: the folder cannot be written.
        """
        from proximo.report import write_report

        return write_report([str(self.save(folder))])

    def export(self, folder: str | Path, *, deterministic: bool = True, batch: int | None = None) -> ExportResult:
        """Write the current policy as files that run without proximo and JAX, as ``proximo export`` does.

        Args:
            folder: where to write. An earlier export in it is replaced.
            deterministic: whether the exported policy can only take the most probable action. If False, it can also sample: it has
                an input for noise.
            batch: number of environments that it acts on; None: any number.

        Returns:
            The folder, its metadata, and warnings.

        Raises:
            ConfigError: the policy cannot be exported, or ``folder`` has other files of the same names.
            EnvError: a library of the extra ``onnx`` is not installed.
            ParityError: the export computes something else than JAX. Nothing is written then.
            CheckpointError: the folder cannot be written.
        """
        from proximo.export import export

        return export(self.policy, Path(folder), deterministic=deterministic, batch=batch)

    def set_env(self, env: Any, **env_settings: Any) -> PPO:
        """Learn on another environment with the same spaces from now on.

        New episodes begin with empty memories. The random keys continue, so episodes are not repeated.

        Args:
            env: an id or an object, as ``PPO`` takes it.
            env_settings: parameters of the environment.

        Returns:
            The agent itself.

        Raises:
            ConfigError: the spaces differ, or another call is learning with this agent.
            EnvError: ``env`` is unknown, or is no environment.
        """
        with exclusive_use(self):
            made, config = replace_environment(self.config, env, env_settings)
            check_same_spaces(self._env, made, config.env.id)
            check_policy(made, config)
            config, evaluated_on = self._evaluations(config, made, _object(env))
            if self._state is not None:
                with contextlib.closing(make_backend(config, made, evaluation=evaluated_on)) as backend:
                    self._state = backend.with_new_episodes(self._state)
            self._env, self._given, self.config, self._evaluated_on = made, _object(env), config, evaluated_on
            self._evaluation = self._best = None  # the evaluations were on the other environment
            self.warnings = check_before_training(self._env, self.config, self._shapes, self._evaluated_on)
        return self

    def save(self, folder: str | Path) -> Path:
        """Write a run directory, which ``proximo.load`` and all commands accept.

        If the folder was saved to before, its content is replaced; ``export``, ``videos`` and ``report.*`` are removed.

        Args:
            folder: an empty or new folder, or one that was saved to before.

        Returns:
            The folder.

        Raises:
            ConfigError: ``folder`` contains other files.
            CheckpointError: the folder cannot be written.
        """
        return save_run(Path(folder), self.config, self.step, self._current_state(), self._evaluation, self.history)


def make_environment(env: Any, settings: Mapping[str, Any], preset: bool) -> tuple[Environment, Config]:
    """The environment of an id or an object, and the settings for it. Raises a ``ConfigError`` for settings of run directories."""
    if name := next(filter(RUN_DIRECTORY.__contains__, settings), None):
        raise ConfigError(
            f"{name} is a setting of run directories: use proximo.train, because a PPO object writes no files by itself."
        )
    if isinstance(env, str):
        config = make_config(env, settings, preset=preset)
        return environment(config), config
    if is_vectorized(type(env)):
        settings = {"num_envs": env.num_envs, **settings}
        if settings["num_envs"] != env.num_envs:
            raise ConfigError(
                f"num_envs = {settings['num_envs']}, but the vector environment has {env.num_envs}: leave out num_envs."
            )
    layers = [Layer({**settings, "id": "<>"})]
    plain = resolve(layers)
    env_id, made = from_object(env, plain.env.env_settings, preprocessing_of(plain))
    config = with_defaults(layers, made) if preset else validate(plain, num_agents(made))
    check_settings(config, made)
    return made, override(config, {"id": env_id})


def replace_environment(config: Config, env: Any, env_settings: dict[str, Any]) -> tuple[Environment, Config]:
    """Another environment for ``config``, with the same number of environments, time limit and preprocessing."""
    settings = {**dataclasses.asdict(config.env), "env_settings": env_settings}
    del settings["id"]
    made, made_config = make_environment(env, settings, preset=False)
    return made, dataclasses.replace(config, env=made_config.env, given={**config.given, "id": made_config.env.id})


def load(
    run: str | Path, *, env: Any = None, eval_env: Any = None, runs_dir: str = "runs", verbose: int = 1, **custom: Any
) -> PPO:
    """Load an agent from what ``PPO.save`` or ``proximo train`` has written. It can act and learn further.

    Args:
        run: a path, the name of a run, or ``last``; optionally with ``@best`` or ``@STEP``. Or ``zoo:NAME``, a policy that proximo
            contains.
        env: the environment. Required if the agent was trained on an object, or on a function of an installed library.
        eval_env: the environment of the evaluations. Required in the same cases; may replace an id.
        runs_dir: folder of the runs that are found by name.
        verbose: as in ``PPO``.
        custom: other objects that the agent was trained with, for example ``encoder=MyEncoder``.

    Returns:
        The agent.

    Raises:
        CheckpointError: ``run`` is not found, or has no valid checkpoint.
        ConfigError: an object in ``custom`` is not the one that the agent was trained with.
        EnvError: the agent was trained or evaluated on an object, and ``env`` or ``eval_env`` is missing.
    """
    prepare_jax()
    path, which = run_lookup.find_single_run(str(run), Path(runs_dir))
    defaults = Config().run
    stored = run_directory.read_config(path, custom)
    config = override(stored, {name: getattr(defaults, name) for name in RUN_DIRECTORY})
    if env is None:
        made = environment(config)
    else:  # an instance has its settings already
        takes_settings = isinstance(env, str) or makes_environments(env)
        made, config = replace_environment(config, env, config.env.env_settings if takes_settings else {})
    agent = PPO.__new__(PPO)
    if eval_env is not None:
        keeps_settings = eval_env == config.run.eval_env if isinstance(eval_env, str) else makes_environments(eval_env)
        config = config if keeps_settings else override(config, {"eval_env_settings": {}})
    if isinstance(eval_env, str):
        config, eval_env = with_given(config, {"eval_env": eval_env}), None
    here = with_available_devices(config)
    agent._set_up(made, here, env, eval_env, verbose)
    saved, warnings = run_lookup.find_checkpoint(path, which, stored)
    with agent._backend() as backend:
        agent._state = backend.restore(saved)
    check_finite(saved.path, agent._state.learner.policy, here)
    agent.step = saved.step
    agent._evaluation = saved.info.get("evaluation")
    agent.warnings = warnings + resume_warnings(config, here)
    if eval_env is None and config.run.eval_env == stored.run.eval_env:  # else evaluations may be of another environment
        best = saved.info.get("best") or agent._evaluation
        agent._best = best if best and best["return_mean"] is not None else None
    folder = saved.path if (saved.path / METRICS).exists() else path  # an incomplete save has its rows in the checkpoint
    agent.history = [row for row in read_rows(folder / METRICS) if row["step"] <= saved.step]
    return agent


def load_like(agent: PPO, folder: Path, custom: Mapping[str, Any]) -> PPO:
    """Load the agent in ``folder`` with the environments (ids or objects) of ``agent``, and the ``custom`` settings."""
    objects, ids = {"id": agent._given, "eval_env": agent._given_eval_env}, agent.config.given
    env, eval_env = (ids.get(name) if given is None else given for name, given in objects.items())
    return load(folder, env=env, eval_env=eval_env, verbose=agent.verbose, **custom)


def change_settings(agent: PPO, config: Config) -> None:
    """Give ``agent`` other settings, which must fit its state. Its next training has their hyperparameters."""
    agent.config, agent._evaluated_on = agent._evaluations(config, agent._env, agent._given)


def learn_in_calls(
    agent: PPO, total_steps: int, interrupts: Interrupts, reporter: Reporter | None = None, max_updates: int | None = None
) -> Iterator[None]:
    """Let ``agent`` learn as in ``PPO.learn``, at the pace of another program, which enters ``interrupts`` while it advances the iterator.

    The iterator yields before each call of the compiled program, of at most ``max_updates``, when the agent has everything learned so far.
    Closing it ends the training. Raises ``ConfigError`` if the agent has learned in another call in between.
    """
    learning = agent._calls(total_steps, interrupts, (), reporter or _WarningList(agent.warnings), max_updates)
    with contextlib.closing(learning) as calls:
        state = agent._state
        while True:
            with exclusive_use(agent):
                if agent._state is not state:
                    raise ConfigError("This agent has learned in another call since this call paused: start a new call.")
                if next(calls, False) is False:
                    return
                state = agent._state
            yield
