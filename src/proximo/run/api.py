"""Train and resume, from Python; the command line is a thin layer above this."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shlex
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from proximo.checks import quick_check
from proximo.config import Config, override
from proximo.drivers.learning import hold_policy
from proximo.errors import CheckpointError, ConfigError, TrainingError, command
from proximo.run import checkpoint, clips, directory, retention, tracking
from proximo.run.callbacks import Listeners, check
from proximo.run.facts import describe
from proximo.run.interrupts import Interrupts
from proximo.run.member import FAILURE, Result, RunMember, locked, opened, writable
from proximo.run.program import HostProgram, Program, make_program, with_total_steps
from proximo.run.progress import Reporter, Warner
from proximo.run.reuse import environment, reuse, stacks_seeds
from proximo.run.settings import changed_for_resume, make_config
from proximo.run.sinks import HISTOGRAMS, METRICS, truncate_after
from proximo.run.system import system_differences, system_info
from proximo.run.training import Training
from proximo.run.validation import validate
from proximo.runtime import prepare_jax
from proximo.signatures import answered
from proximo.types import TrainState

PATIENCE_SECONDS = 15.0


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
    """Train a policy for ``env`` with its preset (unless ``preset`` is false) and ``settings`` (as ``num_envs=16``), or with a whole ``config``.

    ``callbacks`` are told how it goes and may end it (``proximo.run.callbacks``); what is odd is a warning of Python's, unless a ``reporter``
    is told. Returns a ``Result`` for each seed. Raises ``ConfigError``, ``EnvError``
    or ``RunDirectoryError`` for mistakes, before anything is compiled; ``TrainingError`` when training fails by itself.
    """
    if not isinstance(env, str):
        raise ConfigError(
            f"env = {env!r}: a run is of an environment with a name, as 'my_package.module:MyEnv', by which it is found again; proximo.PPO takes objects."
        )
    if config is None:
        config = make_config(env, settings, preset=preset)
    else:
        if not preset:
            raise ConfigError(
                "preset = False, but config has all settings already: proximo.make_config(env, preset=False) makes one without."
            )
        if env and env != config.env.id:
            raise ConfigError(f"env = {env!r}, but config is for {config.env.id!r}: give one of them.")
        config = validate(override(config, settings))
    listened = check(callbacks, bool(config.run.eval_episodes))
    runs_dir = Path(config.run.runs_dir).absolute()  # now: an environment may change the working folder
    tracking.hold(config.run.track)
    prepare_jax()
    reporter = reporter or Warner()
    with _patience(reporter, config.env.id):
        made = environment(config)
        # Once for each environment; the entry holds it, so that its id goes to no other.
        _, warnings = reuse(("checked", id(made)), lambda: (made, quick_check(made, config.env.id)))
    for warning in warnings:
        reporter.warned(warning)
    hold_policy(made, config)  # before a directory is made
    program = make_program(config, made, config.run.seeds > 1 and stacks_seeds(config, made))
    facts = describe(program)
    members = _seed_configs(config)
    places = [f"seed-{m.run.seed}" for m in members] if len(members) > 1 else ["."]

    def fill(folder: Path) -> None:
        for place, member in zip(places, members, strict=True):
            directory.write_start_files(folder / place, member, shlex.join(sys.argv), system_info())

    parent = directory.create(runs_dir, config.env.id, config.run.name, fill)
    run_dirs = [parent / place for place in places]
    with locked(run_dirs):
        reporter.started(config, run_dirs, facts)
        return _train_groups(program, run_dirs, members, None, reporter, parent, listened)


@contextlib.contextmanager
def _patience(reporter: Reporter, env_id: str):
    """Say so when an environment, which is made and tried in this process first, does not come back."""
    said = f"{env_id} has been made, reset or stepped for {PATIENCE_SECONDS:.0f} s and has not come back yet; Ctrl-C ends it."
    timer = threading.Timer(PATIENCE_SECONDS, lambda: reporter.warned(said))
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
    """Go on with ``run`` (a path, a name or ``last``; with ``@best`` or ``@STEP`` from there) from its newest valid checkpoint;
    from the beginning, and saying so, where none was saved yet. ``callbacks`` with the names of those before get the state that was saved of
    them.

    Raises ``CheckpointError`` when none is valid, ``ConfigError`` for settings that a resumed run cannot change.
    """
    reporter = reporter or Warner()
    prepare_jax()
    path, which = directory.resolve(str(run), Path(runs_dir))
    path = path.absolute()  # an environment may change the working folder
    # Before anything is read: what another process still writes would be another run a moment later.
    with locked(directory.members(path) or [path]):
        return _resume(path, which, settings, reporter, check(callbacks))


def _resume(
    path: Path, which: directory.Which, settings: Mapping[str, Any], reporter: Reporter, callbacks: tuple[Any, ...]
) -> list[Result]:
    run_dirs = _without_failed(directory.members(path), reporter) or [path]
    saved = [directory.read_config(run_dir) for run_dir in run_dirs]
    configs = [changed_for_resume(config, settings) for config in saved]
    config = configs[0]
    tracking.hold(config.run.track)
    if config.ppo.total_steps != saved[0].ppo.total_steps:
        reporter.warned(
            f"total_steps {saved[0].ppo.total_steps} → {config.ppo.total_steps}: schedules stretch over the new total, "
            "so that this run differs from one that had it from the start."
        )
    for difference in system_differences(run_dirs[0]):
        reporter.warned(difference)
    if len({c.ppo.total_steps for c in configs}) > 1:
        raise ConfigError(f"The seeds of {path} have different total_steps: resume them singly, or give --total-steps for all.")
    env = environment(config)
    stacked = len(run_dirs) > 1 and stacks_seeds(config, env)
    steps = _steps_to_resume(run_dirs, which, stacked, reporter)
    left = [i for i, step in enumerate(steps) if not _is_complete(run_dirs[i], config, step)]
    if not left:
        raise ConfigError(f"{path} is complete at step {min(steps)}: give a larger --total-steps to go on.")
    together = len(directory.members(path)) or len(directory.members(path.parent))
    if stacks_seeds(config, env) and together > len(left):
        reporter.warned(
            f"{together} seeds were trained in one program, now it is {len(left)}: the last bits may differ from the uninterrupted run's."
        )
    program = make_program(config, env, stacked)
    run_dirs, configs, steps = [run_dirs[i] for i in left], [configs[i] for i in left], [steps[i] for i in left]
    reporter.started(config, run_dirs, {**describe(program), "resumed_at": min(steps)})
    return _train_groups(program, run_dirs, configs, steps, reporter, path, callbacks)


def _without_failed(run_dirs: list[Path], reporter: Reporter) -> list[Path]:
    """Those of a group's seeds that NaN or infinity has not ended: they would end there again."""
    failed = [run_dir for run_dir in run_dirs if (run_dir / FAILURE).exists()]
    if failed:
        names = ", ".join(run_dir.name for run_dir in failed)
        reporter.warned(f"{names} had failed and stays as it is (its {FAILURE} says why).")
    if failed and len(failed) == len(run_dirs):
        raise CheckpointError(f"Every seed of {run_dirs[0].parent} has failed: resume one of them by its own name to try again.")
    return [run_dir for run_dir in run_dirs if run_dir not in failed]


def _is_complete(run_dir: Path, config: Config, step: int) -> bool:
    """Whether nothing is left to do: no update, and not the last evaluation either, which an interruption may have cut short."""
    total = config.total_updates * config.batch_size
    if step > total:
        raise ConfigError(f"{run_dir} stands at step {step} already: total_steps = {total} is less.")
    if step < total:
        return False
    evaluation = checkpoint.read_summary(run_dir / "checkpoints" / str(step), "evaluation")
    return not config.run.eval_episodes or (evaluation is not None and evaluation["step"] == step)


def _seed_configs(config: Config) -> list[Config]:
    """An ordinary run's settings for each seed."""
    seeds = range(config.run.seed, config.run.seed + config.run.seeds)
    return [dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed, seeds=1)) for seed in seeds]


def _train_groups(
    program: Program | HostProgram,
    run_dirs: list[Path],
    configs: list[Config],
    steps: list[int] | None,
    reporter: Reporter,
    path: Path,
    callbacks: tuple[Any, ...],
) -> list[Result]:
    """All seeds together where the program is stacked, else one after the other; ``steps`` are those of a resume of ``path``."""
    size = len(run_dirs) if program.stacked else 1
    results: list[Result] = []
    failures: list[TrainingError] = []
    listeners = [Listeners(callbacks, copied=len(run_dirs) > 1) for _ in run_dirs]
    hurried = f"Stopped at once. Go on with: {command('proximo', 'train', '--resume', path)}"
    left = functools.partial(reporter.left, hurried)
    with Interrupts(reporter.stopping, reporter.owns_process, left) as interrupts, contextlib.closing(program):
        for i in range(0, len(run_dirs), size):
            if interrupts.requested is not None:
                if not any(result.interrupted for result in results):
                    reporter.stopped(
                        f"Stopped before {run_dirs[i].name}. Go on with: {command('proximo', 'train', '--resume', path)}"
                    )
                results = [dataclasses.replace(result, interrupted=interrupts.requested) for result in results]
                break
            group, step = slice(i, i + size), None if steps is None else steps[i]
            with opened(run_dirs[group], configs[group], listeners[group], step, reporter.warned) as members:
                with contextlib.closing(Training(program, members, interrupts, reporter, path)) as training:
                    results += _train_members(training, members, step)
                failures += [member.failure for member in members if member.failure is not None]
    if results:
        reporter.finished(results)
    if failures:
        raise TrainingError(" ".join(map(str, failures)))
    return results


def _train_members(training: Training, members: list[RunMember], step: int | None) -> list[Result]:
    """From the first state; or from ``step`` of a run that is resumed (0: nothing was saved yet)."""
    program = training.program
    # Before anything is written: where it does not fit, the run stays as it is.
    states = [_restore(program, member, step) for member in members] if step else []
    if step is not None:
        for member in members:
            with writable(member.run_dir):
                directory.note_resume(member.run_dir, member.config, shlex.join(sys.argv))
                _rewind(member, step, training.reporter)
    if step:
        return training.run(lambda: program.stack(states), step)
    return training.run(lambda: program.start([member.config.run.seed for member in members]), 0)


def _restore(program: Program | HostProgram, member: RunMember, step: int) -> TrainState:
    state = checkpoint.load(member.checkpoints / str(step), program.template())
    return with_total_steps(jax.tree.map(jnp.asarray, state), member.config)


def _rewind(member: RunMember, step: int, reporter: Reporter) -> None:
    """Forget what the run wrote beyond ``step``, and remember its best evaluation until then, and the state of its callbacks."""
    if step:
        info = checkpoint.verify(member.checkpoints / str(step))["info"]
        path = member.checkpoints / str(step)
        member.best, member.last_evaluation = (checkpoint.read_summary(path, name) for name in ("best", "evaluation"))
        if warning := member.listeners.restore(info.get("callbacks", [])):
            reporter.warned(f"{member.run_dir}: {warning}")
    # Rows last: those of a checkpoint that is still there must not be missing.
    dropped = retention.discard_after(member.checkpoints, step)
    for name in (METRICS, HISTOGRAMS):
        truncate_after(member.run_dir / name, step)
    clips.discard_after(member.run_dir, step)
    if dropped:
        reporter.warned(
            f"{member.run_dir} goes on from step {step}: its later checkpoints ({', '.join(map(str, dropped))}) are dropped."
        )
    best = member.best and int(member.best["step"])
    if best in checkpoint.steps(member.checkpoints):
        retention.mark_best(member.run_dir, best)
    else:
        # It was discarded just now, or pruned when a better one came: what comes next is the best again.
        member.best = None
        retention.unmark_best(member.run_dir)


def _steps_to_resume(run_dirs: list[Path], which: directory.Which, together: bool, reporter: Reporter) -> list[int]:
    """The step that each run goes on from: ``which``, or the newest valid one, or 0 where none was saved yet. One for all
    where they train ``together``."""
    steps = [_step_to_resume(run_dir, which, reporter) for run_dir in run_dirs]
    if not together or len(set(steps)) == 1:
        return steps
    common = min(steps)
    for run_dir in run_dirs:
        saved = checkpoint.steps(run_dir / "checkpoints")
        # All of them begin again where the very first save was cut short, and only there.
        if common not in saved and (common > 0 or len(saved) > 1):
            raise CheckpointError(
                f"{run_dir} has no checkpoint of step {common}, which another seed stands at: resume the seeds singly."
            )
    return [common] * len(run_dirs)


def _step_to_resume(run_dir: Path, which: directory.Which, reporter: Reporter) -> int:
    if which == "last" and not checkpoint.steps(run_dir / "checkpoints"):
        reporter.warned(f"no checkpoint was saved yet in {run_dir}: it starts from the beginning.")
        return 0
    path, warnings = retention.find(run_dir, which)
    for warning in warnings:
        reporter.warned(warning)
    return int(path.name)
