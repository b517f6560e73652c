"""``train`` and ``resume``: trainings with run directories. The command line is a thin layer above them."""

import contextlib
import dataclasses
import functools
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from proximo.checks import check_before_training
from proximo.collect.devices import with_device_number
from proximo.collect.environment import environment, evaluation_during_training
from proximo.collect.learning import check_policy
from proximo.config import LEAVES, Config, from_mapping, override, text_of, to_mapping
from proximo.config.loading import changed_for_resume, resume_warnings, with_given
from proximo.config.typed_settings import ResumeSettings, Settings
from proximo.errors import ConfigError, TrainingError
from proximo.jax_setup import prepare_jax
from proximo.processes.peers import Peers, current
from proximo.settings import agents_of, lists_settings, make_config
from proximo.storage import run_directory, run_lookup
from proximo.storage.named_folders import seed_run_dirs
from proximo.storage.run_directory import locked
from proximo.storage.system_info import exact_versions, system_differences, system_info
from proximo.threads import together
from proximo.tracking.progress import showing_progress
from proximo.tracking.reporter import Reporter
from proximo.tracking.run_trackers import check_trackers
from proximo.training import resuming
from proximo.training.backend import Backend
from proximo.training.backends import make_backend, stacks_seeds
from proximo.training.callbacks import SeedCallbacks, callbacks_of_seeds
from proximo.training.interrupts import Interrupts
from proximo.training.loop import Training
from proximo.training.run_summary import run_summary
from proximo.training.seed_run import Result, SeedRun


@lists_settings(Settings)
def train(
    env: str = "",
    *,
    config: Config | None = None,
    callbacks: Sequence[Any] = (),
    reporter: Reporter | None = None,
    progress: bool | None = None,
    preset: bool = True,
    **settings: Unpack[Settings],
) -> list[Result]:
    """Train a policy and write a run directory.

        [result] = proximo.train("CartPole-v1", total_steps=100_000, num_envs=16)
        print(result.run_dir, result.return_mean)

    Args:
        env: id of an environment, for example ``"CartPole-v1"``, ``"gymnax:CartPole-v1"`` or ``"my_package.module:MyEnv"``.
        config: all settings, as ``proximo.make_config`` returns them, instead of a preset. ``settings`` still override it.
        callbacks: objects that receive progress and may stop the training, see ``proximo.training.callbacks``.
        reporter: receives progress and warnings; by default warnings are Python warnings.
        progress: whether to show steps, returns and speed, as a bar or as a line every ten seconds. None: only on a terminal and in
            a notebook, unless there is a ``reporter``.
        preset: whether to start from the preset of ``env``, or, without one, from the defaults for its kind of environment.
        settings: settings of ``proximo train`` by name, for example ``num_envs=16``.

    Returns:
        One result for each seed.

    Raises:
        ConfigError: a setting or callback is invalid, or a callback returns an invalid value. Settings are checked before the
            program that trains is compiled.
        EnvError: ``env`` is unknown, or its environment breaks the protocol.
        RunDirectoryError: the run directory exists already, or cannot be written.
        TrainingError: NaN or infinity, or a failing environment, ends the training.
        CheckpointError: a checkpoint cannot be written.
    """
    peers = current()
    with peers.failing_together(), contextlib.ExitStack() as stack:
        config = settings_of(env, config, preset, settings)
        of_seeds = callbacks_of_seeds(callbacks, config, config.run.seeds)
        reporter = stack.enter_context(showing_progress(reporter, progress, Reporter()))
        runs_dir = Path(config.run.runs_dir).absolute()  # now, because an environment may change the working folder
        prepare_jax(config.shares_program)
        config = _agreed(config, peers)
        made = environment(config)
        evaluation = evaluation_during_training(config, made)
        policy = check_policy(made, config)  # before a directory is made
        for warning in check_before_training(made, config, policy, evaluation):
            reporter.warned(warning)
        backend = make_backend(config, made, config.run.seeds > 1 and stacks_seeds(config, made), evaluation)
        seeds = range(config.run.seed, config.run.seed + config.run.seeds)
        configs = {f"seed-{seed}" if len(seeds) > 1 else ".": override(config, {"seed": seed, "seeds": 1}) for seed in seeds}

        def fill(folder: Path) -> None:
            for name, seed_config in configs.items():
                run_directory.write_start_files(folder / name, seed_config, shlex.join(sys.argv), system_info())

        create = functools.partial(run_directory.create, runs_dir, config.env.id, config.run.name, fill)
        parent = Path(peers.from_first(lambda: str(create()), "the run directory"))
        for name in configs if peers.is_first else ():
            stack.enter_context(locked(parent / name))
        runs = [SeedRun(seed_config, parent / name) for name, seed_config in configs.items()]
        return _train_seeds(backend, runs, of_seeds, reporter, parent)


def _agreed(config: Config, peers: Peers) -> Config:
    """``config`` with a number of devices. Raises ``ConfigError`` if there is no such tracker, or if settings and
    versions differ between processes that train together."""
    check_trackers(config.run.track)
    config = with_device_number(config)
    values = {leaf.name: re.sub(" at 0x[0-9a-f]+", "", text_of(leaf.value_in(config))) for leaf in LEAVES.values()}
    peers.check_equal(lambda: {**values, **exact_versions()})
    return config


def settings_of(env: Any, config: Config | None, preset: bool, settings: Mapping[str, Any]) -> Config:
    """The settings of a training, from the arguments of ``train``. Raises ``ConfigError`` if they contradict."""
    for name, given in (("env", env), ("eval_env", settings.get("eval_env", ""))):
        if not isinstance(given, str):
            raise ConfigError(
                f"{name} = {given!r}: expected an id, for example 'my_package.module:MyEnv', which later commands can find again. "
                "proximo.PPO accepts objects."
            )
    if config is None:
        return make_config(env, settings, preset=preset)
    if not isinstance(config, Config):
        raise ConfigError(f"config = {config!r}: expected a Config, which proximo.make_config makes, also from a file.")
    if not preset:
        raise ConfigError(
            "preset = False, but config has all settings already: use it in proximo.make_config(env, preset=False)."
        )
    if env and env != config.env.id:
        raise ConfigError(f"env = {env!r}, but config is for {config.env.id!r}: give one of them.")
    num_agents = agents_of(config) if settings.get("minibatch_size") else 1
    return with_given(config, {**settings, **({"id": env} if env else {})}, num_agents)


def resume(
    run: str | Path,
    *,
    env: str = "",
    runs_dir: str = "runs",
    callbacks: Sequence[Any] = (),
    reporter: Reporter | None = None,
    progress: bool | None = None,
    **settings: Unpack[ResumeSettings],
) -> list[Result]:
    """Continue a run from its newest valid checkpoint or, if it has none yet, from the beginning with a warning.

        proximo.resume("last", total_steps=200_000)

    Args:
        run: a path, the name of a run, or ``last``; optionally with ``@best`` or ``@STEP``. Later checkpoints and rows are removed.
        env: the id of the environment again. Required if it names a function of an installed library, because a file must
            not choose which function is called. The same holds for ``eval_env``.
        runs_dir: folder of the runs that are found by name.
        callbacks: as in ``train``. They get their saved state if their class names and order are the same as before.
        reporter: as in ``train``.
        progress: as in ``train``.
        settings: settings that a resumed run may change, for example ``total_steps``.

    Returns:
        One result for each seed that was resumed.

    Raises:
        CheckpointError: there is no such run, or none of its checkpoints is valid.
        ConfigError: the run is complete, or a setting cannot change when a run is resumed.
        RunDirectoryError: another process writes into the run directory, or it cannot be written.
        TrainingError: as in ``train``.
    """
    given = {**settings, **({"id": env} if env else {})}
    peers = current()
    with showing_progress(reporter, progress, Reporter()) as reporter, peers.failing_together(), contextlib.ExitStack() as locks:

        def find() -> tuple[str, run_lookup.Which, list[tuple[str, Any]]]:
            path, which = run_lookup.find_run(str(run), Path(runs_dir), with_zoo=False)
            path = path.absolute()  # an environment may change the working folder
            # Before anything is read, because another process may still write.
            for run_dir in seed_run_dirs(path) or [path]:
                locks.enter_context(locked(run_dir))
            run_dirs = resuming.not_ended(seed_run_dirs(path), reporter) or [path]
            return str(path), which, [(str(each), to_mapping(run_directory.read_config(each))) for each in run_dirs]

        found, which, stored = peers.from_first(find, "the run")
        path, run_dirs = Path(found), [Path(name) for name, _ in stored]  # which only process 0 reads
        before = [from_mapping(mapping, Config(), found) for _, mapping in stored]
        # Several processes use all their devices, also if the run used others before.
        devices = {"devices": "all"} if peers.count > 1 else {}
        changed = [override(changed_for_resume(config, given), devices) for config in before]
        prepare_jax(override(changed[0], {"seeds": len(run_dirs)}).shares_program)
        configs = [_agreed(config, peers) for config in changed]
        config = configs[0]
        resuming.check_shared_settings(path, configs)
        made = environment(config)
        stacked = len(run_dirs) > 1 and stacks_seeds(config, made)
        library = config.env.id.partition(":")[0]
        changes = system_differences(run_dirs[0], library, stacked) if peers.is_first else ()
        runs = resuming.starts(run_dirs, configs, which, stacked, reporter, peers)
        for warning in (*resume_warnings(before[0], config), *changes):
            reporter.warned(warning)
        together = len(seed_run_dirs(path)) or len(seed_run_dirs(path.parent)) if stacks_seeds(config, made) else 0
        if together > len(runs):
            reporter.warned(
                f"{together} seeds were trained in one program before, and {len(runs)} now: the last bits may differ from the "
                "uninterrupted run's."
            )
        of_seeds = callbacks_of_seeds(callbacks, config, len(runs))
        backend = make_backend(override(config, {"seeds": len(runs)}), made, stacked)
        return _train_seeds(backend, runs, of_seeds, reporter, path)


def _train_seeds(
    backend: Backend, runs: list[SeedRun], callbacks: list[SeedCallbacks], reporter: Reporter, path: Path
) -> list[Result]:
    """Train all seeds together, or one after the other. ``path`` is what the user resumes."""
    peers, resumed_at = backend.peers, None if runs[0].resumed_at is None else min(run.step for run in runs)
    reporter.started(backend.config, [run.folder for run in runs], run_summary(backend, resumed_at))
    for run, own in zip(runs, callbacks, strict=True):
        run.callbacks = own
    size, results, failures = len(runs) if backend.stacked else 1, list[Result](), list[TrainingError]()
    how_to_continue = f"Go on with: {peers.how_to_resume(path)}"
    on_exit = functools.partial(reporter.exiting, f"Stopped at once. {how_to_continue}")
    with (
        Interrupts(reporter.stopping, reporter.owns_process, on_exit, peers.request) as interrupts,
        contextlib.closing(backend),
    ):
        for i in range(0, len(runs), size):
            requested = next(filter(None, peers.agree(interrupts.requested, "the next seed")), None)
            if i and requested is not None:  # in the last call or evaluation of the seed before, which is complete
                reporter.stopped(f"Stopped before {runs[i].folder.name}. {how_to_continue}")
                results = [dataclasses.replace(result, interrupted=requested) for result in results]
                break
            training = _train_together(backend, runs[i : i + size], interrupts, reporter, path)
            for run in training.seed_runs:
                if run.failure is None:
                    results.append(run.result(backend.compile_seconds, training.interrupted, size))
                else:
                    failures.append(run.failure)
            if training.interrupted is not None:
                break
    if results:
        reporter.finished(results)
    if failures:
        raise TrainingError(" ".join(map(str, failures)))
    return results


def _train_together(backend: Backend, runs: list[SeedRun], interrupts: Interrupts, reporter: Reporter, path: Path) -> Training:
    """Train the seeds of one program, to their end."""
    # Restore before anything is written: if a checkpoint does not fit, the run stays unchanged.
    states = [resuming.restore(backend, run, reporter) for run in runs if run.info is not None]
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: together(*(run.trackers.close for run in runs)))
        for run in runs if backend.peers.is_first else ():
            with run_directory.writing(run.folder):
                run.open(reporter.warned)
        training = stack.enter_context(contextlib.closing(Training(backend, runs, interrupts, reporter, path)))
        numbers = [run.config.run.seed for run in runs]
        for _ in training.calls(lambda: backend.join(states) if states else backend.start(numbers), runs[0].step):
            pass
    return training
