"""The seeds of one training: trained together or one after the other, each with its run directory."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shlex
import sys
from pathlib import Path
from typing import Any

from proximo.backends import Backend
from proximo.config import Config
from proximo.errors import TrainingError, command
from proximo.storage import run_directory
from proximo.storage.checkpoint import Checkpoint
from proximo.tracking.reporter import Reporter
from proximo.training import resuming
from proximo.training.callbacks import Listeners
from proximo.training.interrupts import Interrupts
from proximo.training.loop import Training
from proximo.training.seed_run import Result
from proximo.training.stored_seed_run import StoredSeedRun, opened, writable


def train_groups(
    backend: Backend,
    run_dirs: list[Path],
    configs: list[Config],
    saved: list[Checkpoint | None] | None,
    reporter: Reporter,
    path: Path,
    callbacks: tuple[Any, ...],
) -> list[Result]:
    """Train all seeds together if the backend is stacked, otherwise one after the other. ``saved`` are the checkpoints of a resume of ``path``."""
    size = len(run_dirs) if backend.stacked else 1
    results: list[Result] = []
    failures: list[TrainingError] = []
    listeners = [Listeners(callbacks, copied=len(run_dirs) > 1) for _ in run_dirs]
    how_to_continue = f"Go on with: {command('proximo', 'train', '--resume', path)}"
    on_exit = functools.partial(reporter.left, f"Stopped at once. {how_to_continue}")
    with Interrupts(reporter.stopping, reporter.owns_process, on_exit) as interrupts, contextlib.closing(backend):
        for i in range(0, len(run_dirs), size):
            if interrupts.requested is not None:
                if not any(result.interrupted for result in results):
                    reporter.stopped(f"Stopped before {run_dirs[i].name}. {how_to_continue}")
                results = [dataclasses.replace(result, interrupted=interrupts.requested) for result in results]
                break
            group = slice(i, i + size)
            resumed = None if saved is None else saved[group]
            step = None if resumed is None else resuming.step_of(resumed[0])
            with opened(run_dirs[group], configs[group], listeners[group], step, reporter.warned) as seed_runs:
                with contextlib.closing(Training(backend, seed_runs, interrupts, reporter, path)) as training:
                    results += _train_seed_runs(training, seed_runs, resumed)
                failures += [seed_run.failure for seed_run in seed_runs if seed_run.failure is not None]
    if results:
        reporter.finished(results)
    if failures:
        raise TrainingError(" ".join(map(str, failures)))
    return results


def _train_seed_runs(training: Training, seed_runs: list[StoredSeedRun], saved: list[Checkpoint | None] | None) -> list[Result]:
    """Train from the first state (``saved`` is None), or from the checkpoints of a resume (None: none was saved yet)."""
    backend = training.backend
    resumed = [] if saved is None else list(zip(seed_runs, saved, strict=True))
    # Restore before anything is written: if a checkpoint does not fit, the run stays unchanged.
    states = [resuming.restore(backend, seed_run, found, training.reporter) for seed_run, found in resumed if found]
    for seed_run, found in resumed:
        with writable(seed_run.run_dir):
            run_directory.note_resume(seed_run.run_dir, seed_run.config, shlex.join(sys.argv))
            resuming.rewind(seed_run, resuming.step_of(found), training.reporter)
    if states:
        return training.run(lambda: backend.join(states), resuming.step_of(resumed[0][1]))
    return training.run(lambda: backend.start([seed_run.config.run.seed for seed_run in seed_runs]), 0)
