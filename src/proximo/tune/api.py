"""Tune and resume, from Python; the command line is a thin layer above this."""

from __future__ import annotations

import math
import os
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proximo.checks import quick_check
from proximo.errors import ConfigError, TrainingError, command
from proximo.run import directory
from proximo.run.directory import RunLock
from proximo.run.facts import describe
from proximo.run.files import write_atomic
from proximo.run.interrupts import AbandonedError, Interrupts
from proximo.run.program import make_program
from proximo.run.reuse import environment
from proximo.runtime import prepare_jax
from proximo.tune.evaluated import StoppedError, Watch
from proximo.tune.pictures import draw_pictures
from proximo.tune.plan import StudyPlan, find_study, read_plan
from proximo.tune.progress import Reporter
from proximo.tune.record import Record, best_of
from proximo.tune.result import PRESET, summary, write_tables
from proximo.tune.study import Study
from proximo.tune.trials import is_of_host


@dataclass(frozen=True)
class TuneResult:
    """What a study has come to: all trials, the best of them, and the preset that was written; None without a trial that ended."""

    folder: Path
    plan: StudyPlan
    trials: list[Record]
    best: Record | None
    preset: Path | None
    interrupted: int | None = None
    """The signal that ended it early, if one did."""

    def summary(self) -> dict[str, Any]:
        """As one mapping that JSON can hold."""
        return summary(self.folder, self.plan, self.trials)


def tune(
    plan: StudyPlan,
    *,
    name: str = "",
    tune_dir: str | Path = "tune",
    seconds: float | None = None,
    reporter: Reporter | None = None,
) -> TuneResult:
    """A new study in ``tune_dir/<env>/<name>/``; for ``seconds`` at most, where given.

    Raises ``ConfigError``, ``EnvError`` or ``RunDirectoryError`` for mistakes before anything is trained, ``TrainingError`` when
    every trial failed.
    """
    reporter = reporter or Reporter()
    tune_dir = Path(tune_dir).absolute()  # now: an environment may change the working folder
    prepare(plan, reporter)

    def fill(folder: Path) -> None:
        plan.write(folder)
        write_atomic(folder / "command.txt", shlex.join(sys.argv) + "\n")

    folder = directory.create(tune_dir, plan.base.env.id, name, fill, "--tune-dir")
    return _run(folder, plan, seconds, reporter)


def resume(
    study: str | Path,
    *,
    trials: int | None = None,
    tune_dir: str | Path = "tune",
    seconds: float | None = None,
    reporter: Reporter | None = None,
) -> TuneResult:
    """Go on with ``study`` (a path, a name or ``last``), to its number of trials or to another one."""
    reporter = reporter or Reporter()
    folder = find_study(str(study), Path(tune_dir)).absolute()
    plan = read_plan(folder)
    if trials is not None:
        plan = StudyPlan(**{**vars(plan), "trials": trials})
    prepare(plan, reporter)
    if trials is not None:
        plan.write(folder)
    return _run(folder, plan, seconds, reporter)


def prepare(plan: StudyPlan, reporter: Reporter) -> None:
    """Raise for what would fail later: an environment that is not one, a policy that its spaces have none for, a plan at odds."""
    prepare_jax()
    env = environment(plan.base)
    for warning in quick_check(env, plan.base.env.id):
        reporter.warned(warning)
    host = is_of_host(plan.base)
    if host and plan.together > 1:
        raise ConfigError(
            f"together = {plan.together}: {plan.base.env.id} is stepped on the host, where trials train one after the other."
        )
    describe(make_program(plan.base, env, stacked=not host))


def _run(folder: Path, plan: StudyPlan, seconds: float | None, reporter: Reporter) -> TuneResult:
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"seconds = {seconds}: expected more than 0.")
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    hurried = f"Stopped at once; the trials that are over stand. Go on with: {command('proximo', 'tune', '--resume', folder)}"
    with RunLock(folder), Interrupts(reporter.stopping, left=lambda: reporter.left(hurried)) as interrupts:
        study = Study(folder, plan, Watch(interrupts), reporter, deadline)
        reporter.started(folder, plan, study.trials, study.shaping)
        try:
            study.search()
            study.final_round()
        except StoppedError:
            reporter.stopped(_stop_message(folder, study.trials))
        except AbandonedError:
            # A call is still running and cannot be ended from outside: what is finished stands.
            _finish(study)
            message = _stop_message(folder, study.trials)
            reporter.stopped(message)
            reporter.left(message)
            os._exit(128 + (interrupts.requested or 0))
        finally:
            best = _finish(study)
        if best is None and interrupts.requested is None:
            reasons = next((t.reason for t in study.trials if t.reason), "no trial was trained to its end")
            raise TrainingError(f"No trial of {folder} gave a score: {reasons}.")
        preset = folder / PRESET if best is not None else None
        return TuneResult(folder, plan, study.trials, best, preset, interrupts.requested)


def _finish(study: Study) -> Record | None:
    """Write tables and pictures of what there is; the best trial."""
    trials = study.trials
    write_tables(study.folder, study.plan, trials)
    if any(t.state == "done" for t in trials):
        title = f"{study.plan.base.env.id}, {sum(t.state != 'running' for t in trials)} trials of {study.plan.seeds} seeds"
        draw_pictures(study.folder, study.study, trials, title)
    return best_of(trials)


def _stop_message(folder: Path, trials: list[Record]) -> str:
    over = sum(t.state != "running" for t in trials)
    return f"Stopped; the {over} trials that are over stand. Go on with: {command('proximo', 'tune', '--resume', folder)}"
