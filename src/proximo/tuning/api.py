"""Runs and continues studies. ``proximo.tune`` and the command line are thin layers above this."""

from __future__ import annotations

import math
import os
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proximo.backends import make_backend
from proximo.checks import quick_check
from proximo.collect.environment import environment
from proximo.config.validation import check_name
from proximo.errors import ConfigError, TrainingError, command
from proximo.jax_setup import prepare_jax
from proximo.processes.peers import current
from proximo.storage import run_directory
from proximo.storage.atomic_files import write_atomic
from proximo.storage.named_folders import find_folder
from proximo.storage.run_lock import RunLock
from proximo.training.interrupts import AbandonedError, Interrupts
from proximo.training.run_summary import run_summary
from proximo.tuning import check_seconds
from proximo.tuning.pictures import draw_pictures
from proximo.tuning.plan import STUDIES, StudyPlan, read_plan
from proximo.tuning.progress import Reporter
from proximo.tuning.record import Record, best_of
from proximo.tuning.result import PRESET, summary, write_tables
from proximo.tuning.study import Study
from proximo.tuning.trial import StoppedError, Watch


@dataclass(frozen=True)
class TuneResult:
    """The result of a study."""

    folder: Path
    """The folder of the study."""
    plan: StudyPlan
    """The plan of the study."""
    trials: list[Record]
    """All trials."""
    best: Record | None
    """The best trial, with its ``settings`` and ``score``; None if no trial was trained to its end."""
    preset: Path | None
    """The preset of the best trial; None if there is none."""
    interrupted: int | None = None
    """Number of the signal that ended the study early; None if none did."""

    def __repr__(self) -> str:
        best = "no score" if self.best is None else f"best score {self.best.score:.4g} by {self.best.name}"
        return f"TuneResult({str(self.folder)!r}: {len(self.trials)} trials, {best})"

    def summary(self) -> dict[str, Any]:
        """Summarize the result for JSON.

        Returns:
            What ``proximo tune --json`` prints.
        """
        return summary(self.folder, self.plan, self.trials)


def run_study(
    plan: StudyPlan,
    *,
    name: str = "",
    tune_dir: str | Path = "tune",
    seconds: float | None = None,
    reporter: Reporter | None = None,
) -> TuneResult:
    """Run a new study.

    Args:
        plan: the plan, from ``make_plan``.
        name: name of the study; by default date and time.
        tune_dir: folder of all studies. The study is in ``tune_dir/<env>/<name>/``.
        seconds: time limit in seconds, final round included; None: no limit.
        reporter: receives the progress.

    Returns:
        The result.

    Raises:
        ConfigError: the plan does not fit the environment, a study cannot have this ``name``, or ``seconds`` is not positive.
        EnvError: the environment cannot be made, or breaks its protocol.
        RunDirectoryError: the folder of the study exists already, or cannot be written.
        TrainingError: every trial failed.
    """
    reporter = reporter or Reporter()
    tune_dir = Path(tune_dir).absolute()  # now: an environment may change the working folder
    check_seconds(seconds)
    check_name(name)
    prepare(plan, reporter)

    def fill(folder: Path) -> None:
        plan.write(folder)
        write_atomic(folder / "command.txt", shlex.join(sys.argv) + "\n")

    folder = run_directory.create(tune_dir, plan.base.env.id, name, fill, "--tune-dir")
    return _run(folder, plan, seconds, reporter)


def resume(
    study: str | Path,
    *,
    trials: int | None = None,
    tune_dir: str | Path = "tune",
    seconds: float | None = None,
    reporter: Reporter | None = None,
) -> TuneResult:
    """Continue a study.

    Args:
        study: a path, the name of a study, or ``last``.
        trials: new number of trials, including the finished ones; None: that of the plan.
        tune_dir: folder of all studies.
        seconds: time limit of this session in seconds; None: no limit.
        reporter: receives the progress.

    Returns:
        The result, with the earlier trials.

    Raises:
        CheckpointError: the study is unknown or damaged.
        ConfigError: as in ``run_study``.
        TrainingError: every trial failed.
    """
    reporter = reporter or Reporter()
    folder = find_folder(str(study), Path(tune_dir), STUDIES).absolute()
    plan = read_plan(folder)
    if trials is not None:
        plan = StudyPlan(**{**vars(plan), "trials": trials})
    check_seconds(seconds)
    prepare(plan, reporter)
    return _run(folder, plan, seconds, reporter, is_changed=trials is not None)


def prepare(plan: StudyPlan, reporter: Reporter) -> None:
    """Raise for what would fail later: a broken environment, unsupported spaces, or a plan that does not fit the environment."""
    prepare_jax(for_seeds=True)
    current().require_one("tune")
    env = environment(plan.base)
    for warning in quick_check(env, plan.base.env.id).warnings:
        reporter.warned(warning)
    backend = make_backend(plan.base, env, stacked=True)
    if plan.together > 1 and not backend.stacked:
        raise ConfigError(
            f"together = {plan.together}: {plan.base.env.id} is a Gymnasium environment, where trials train one after the other: use 1."
        )
    run_summary(backend)


def _run(folder: Path, plan: StudyPlan, seconds: float | None, reporter: Reporter, is_changed: bool = False) -> TuneResult:
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    hurried = f"Stopped at once; the finished trials are kept. Go on with: {command('proximo', 'tune', '--resume', folder)}"
    with (
        RunLock(folder),
        Interrupts(reporter.stopping, reporter.owns_process, on_exit=lambda: reporter.exiting(hurried)) as interrupts,
    ):
        if is_changed:
            plan.write(folder)
        study = Study(folder, plan, Watch(interrupts), reporter, deadline)
        reporter.started(folder, plan, study.trials, study.shaping)
        try:
            study.search()
            study.final_round()
        except StoppedError:
            reporter.stopped(_stop_message(folder, study.trials))
        except AbandonedError:
            # A call is still running and cannot be ended from outside. Finished trials are kept.
            message = _stop_message(folder, study.trials)
            reporter.stopped(message)
            if not interrupts.owns_process:
                raise KeyboardInterrupt from None
            _finish(study)
            reporter.exiting(message)
            os._exit(128 + (interrupts.requested or 0))
        finally:
            best = _finish(study)
        if best is None and interrupts.requested is None:
            reasons = next((t.reason for t in study.trials if t.reason), "no trial was trained to its end")
            raise TrainingError(f"No trial of {folder} gave a score: {reasons}.")
        preset = folder / PRESET if best is not None else None
        return TuneResult(folder, plan, study.trials, best, preset, interrupts.requested)


def _finish(study: Study) -> Record | None:
    """Write tables and pictures of the trials so far. Returns the best trial."""
    trials = study.trials
    write_tables(study.folder, study.plan, trials)
    if any(t.state == "done" for t in trials):
        title = f"{study.plan.base.env.id}, {sum(t.state != 'running' for t in trials)} trials of {study.plan.seeds} seeds"
        draw_pictures(study.folder, study.study, title)
    return best_of(trials)


def _stop_message(folder: Path, trials: list[Record]) -> str:
    over = sum(t.state != "running" for t in trials)
    return f"Stopped; the {over} finished trials are kept. Go on with: {command('proximo', 'tune', '--resume', folder)}"
