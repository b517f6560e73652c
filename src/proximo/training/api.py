"""``train`` and ``resume``: trainings with run directories. The command line is a thin layer above them."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proximo.backends import make_backend, stacks_seeds
from proximo.checks import quick_check
from proximo.collect.learning import check_policy
from proximo.collect.program_cache import environment, reuse
from proximo.config import Config, override
from proximo.config.loading import changed_for_resume, make_config
from proximo.config.validation import validate
from proximo.errors import ConfigError
from proximo.jax_setup import prepare_jax
from proximo.signatures import answered
from proximo.storage import run_directory
from proximo.storage.system_info import system_differences, system_info
from proximo.tracking import trackers
from proximo.tracking.reporter import Reporter, Warner
from proximo.training import resuming
from proximo.training.callbacks import check_callbacks
from proximo.training.run_summary import run_summary
from proximo.training.seed_groups import train_groups
from proximo.training.seed_run import Result
from proximo.training.stored_seed_run import locked

SLOW_SECONDS = 15.0
"""After this time, a warning says that the environment has not been made and checked yet."""


@answered
def train(
    env: str = "",
    *,
    config: Config | None = None,
    callbacks: Sequence[Any] = (),
    reporter: Reporter | None = None,
    preset: bool = True,
    **settings: Any,
) -> list[Result]:
    """Train a policy and write a run directory.

        [result] = proximo.train("CartPole-v1", total_steps=100_000, num_envs=16)
        print(result.run_dir, result.return_mean)

    Args:
        env: id of an environment, for example ``"CartPole-v1"``, ``"gymnax:CartPole-v1"`` or ``"my_package.module:MyEnv"``.
        config: all settings, as ``proximo.make_config`` returns them, instead of the preset of ``env``. ``settings`` still override it.
        callbacks: objects that receive progress and may stop the training, see ``proximo.training.callbacks``.
        reporter: receives progress and warnings; by default warnings are Python warnings.
        preset: whether to start from the preset of ``env``, if it has one.
        settings: settings of ``proximo train`` by name, for example ``num_envs=16``. ``proximo train --help`` lists them.

    Returns:
        One result for each seed.

    Raises:
        ConfigError: a setting or callback is invalid. This and the next two errors are raised before anything is compiled.
        EnvError: ``env`` is unknown, or its environment breaks the protocol.
        RunDirectoryError: the run directory exists already, or cannot be written.
        TrainingError: NaN or infinity, or a failing environment, ends the training.
    """
    if not isinstance(env, str):
        raise ConfigError(
            f"env = {env!r}: expected an id, for example 'my_package.module:MyEnv', which later commands can find again. proximo.PPO accepts objects."
        )
    if config is None:
        config = make_config(env, settings, preset=preset)
    else:
        if not preset:
            raise ConfigError(
                "preset = False, but config has all settings already: use proximo.make_config(env, preset=False) to make one without a preset."
            )
        if env and env != config.env.id:
            raise ConfigError(f"env = {env!r}, but config is for {config.env.id!r}: give one of them.")
        config = validate(override(config, settings))
    checked = check_callbacks(callbacks, bool(config.run.eval_episodes))
    runs_dir = Path(config.run.runs_dir).absolute()  # now, because an environment may change the working folder
    trackers.check(config.run.track)
    prepare_jax()
    reporter = reporter or Warner()
    with _warns_if_slow(reporter, config.env.id):
        made = environment(config)
        # Once for each environment. The entry keeps a reference, so that no other object gets the same id().
        _, warnings = reuse(("checked", id(made)), lambda: (made, quick_check(made, config.env.id)))
    for warning in warnings:
        reporter.warned(warning)
    check_policy(made, config)  # before a directory is made
    backend = make_backend(config, made, config.run.seeds > 1 and stacks_seeds(config, made))
    summary = run_summary(backend)
    configs = _seed_configs(config)
    names = [f"seed-{c.run.seed}" for c in configs] if len(configs) > 1 else ["."]

    def fill(folder: Path) -> None:
        for name, seed_config in zip(names, configs, strict=True):
            run_directory.write_start_files(folder / name, seed_config, shlex.join(sys.argv), system_info())

    parent = run_directory.create(runs_dir, config.env.id, config.run.name, fill)
    run_dirs = [parent / name for name in names]
    with locked(run_dirs):
        reporter.started(config, run_dirs, summary)
        return train_groups(backend, run_dirs, configs, None, reporter, parent, checked)


@contextlib.contextmanager
def _warns_if_slow(reporter: Reporter, env_id: str) -> Iterator[None]:
    """Warn if the environment, which is made and checked in this process first, blocks it."""
    message = f"{env_id} has been made, reset or stepped for {SLOW_SECONDS:.0f} s and has not returned yet; Ctrl-C stops it."
    timer = threading.Timer(SLOW_SECONDS, lambda: reporter.warned(message))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@answered
def resume(
    run: str | Path,
    *,
    runs_dir: str = "runs",
    callbacks: Sequence[Any] = (),
    reporter: Reporter | None = None,
    **settings: Any,
) -> list[Result]:
    """Continue a run from its newest valid checkpoint or, if it has none yet, from the beginning with a warning.

        proximo.resume("last", total_steps=200_000)

    Args:
        run: a path, the name of a run, or ``last``; optionally with ``@best`` or ``@STEP``. Later checkpoints and rows are removed.
        runs_dir: folder of the runs that are found by name.
        callbacks: as in ``train``. Callbacks with the same class names as before get their saved state.
        reporter: as in ``train``.
        settings: settings that a resumed run may change, for example ``total_steps``.

    Returns:
        One result for each seed that was resumed.

    Raises:
        CheckpointError: no checkpoint is valid.
        ConfigError: the run is complete, or a setting cannot change when a run is resumed.
        RunDirectoryError: another process writes into the run directory, or it cannot be written.
        TrainingError: as in ``train``.
    """
    reporter = reporter or Warner()
    prepare_jax()
    path, which = run_directory.resolve(str(run), Path(runs_dir))
    path = path.absolute()  # an environment may change the working folder
    # Before anything is read, because another process may still write.
    with locked(run_directory.seed_run_dirs(path) or [path]):
        return _resume(path, which, settings, reporter, check_callbacks(callbacks))


def _resume(
    path: Path, which: run_directory.Which, settings: Mapping[str, Any], reporter: Reporter, callbacks: tuple[Any, ...]
) -> list[Result]:
    run_dirs = resuming.without_failed(run_directory.seed_run_dirs(path), reporter) or [path]
    before = [run_directory.read_config(run_dir) for run_dir in run_dirs]
    configs = [changed_for_resume(config, settings) for config in before]
    config = configs[0]
    trackers.check(config.run.track)
    if config.ppo.total_steps != before[0].ppo.total_steps:
        reporter.warned(
            f"total_steps {before[0].ppo.total_steps} → {config.ppo.total_steps}: schedules stretch over the new total, "
            "so this run differs from one that had the new total from the start."
        )
    for difference in system_differences(run_dirs[0]):
        reporter.warned(difference)
    if len({c.ppo.total_steps for c in configs}) > 1:
        raise ConfigError(
            f"The seeds of {path} have different total_steps: resume each seed alone, or give --total-steps for all."
        )
    env = environment(config)
    stacked = len(run_dirs) > 1 and stacks_seeds(config, env)
    saved = resuming.checkpoints_to_resume(run_dirs, which, stacked, reporter)
    left = [i for i, found in enumerate(saved) if not resuming.is_complete(run_dirs[i], config, found)]
    if not left:
        raise ConfigError(
            f"{path} is complete at step {min(map(resuming.step_of, saved))}: give a larger --total-steps to continue."
        )
    together = len(run_directory.seed_run_dirs(path)) or len(run_directory.seed_run_dirs(path.parent))
    if stacks_seeds(config, env) and together > len(left):
        reporter.warned(
            f"{together} seeds were trained in one program, now it is {len(left)}: the last bits may differ from the uninterrupted run's."
        )
    backend = make_backend(config, env, stacked)
    run_dirs, configs, saved = [run_dirs[i] for i in left], [configs[i] for i in left], [saved[i] for i in left]
    reporter.started(config, run_dirs, {**run_summary(backend), "resumed_at": min(map(resuming.step_of, saved))})
    return train_groups(backend, run_dirs, configs, saved, reporter, path, callbacks)


def _seed_configs(config: Config) -> list[Config]:
    """The settings of each seed, which are those of an ordinary run."""
    seeds = range(config.run.seed, config.run.seed + config.run.seeds)
    return [dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed, seeds=1)) for seed in seeds]
