"""A seed of a training with a run directory: checkpoints, rows, histograms and clips on the disk."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from proximo.config import Config, to_mapping
from proximo.errors import CheckpointError, RunDirectoryError, TrainingError
from proximo.storage import checkpoint, retention
from proximo.storage.atomic_files import write_atomic
from proximo.storage.checkpoint import Checkpoint
from proximo.storage.checkpoint_format import encode
from proximo.storage.run_directory import FAILURE, STOPPED, render_config
from proximo.storage.run_lock import RunLock
from proximo.tracking.run_trackers import RunTrackers
from proximo.tracking.tracker import TrackedRun, Tracker
from proximo.training.callbacks import SeedCallbacks
from proximo.training.seed_run import Result, SeedRun
from proximo.training.timed_calls import TimedCalls
from proximo.types import TrainState


class SeedStart(NamedTuple):
    """Where the training of a seed starts."""

    run_dir: Path
    config: Config
    """Settings of this seed."""
    resumed_at: int | None = None
    """Step that a resumed run continues from; None for a new run."""
    saved: Checkpoint | None = None
    """The checkpoint of that step; None for a new run, or if none was saved yet."""

    @property
    def step(self) -> int:
        """Environment steps of the first state."""
        return self.resumed_at or 0


class StoredSeedRun(SeedRun):
    """A seed with a run directory. ``warn`` receives warnings of trackers that fail."""

    run_dir: Path

    def __init__(self, start: SeedStart, callbacks: SeedCallbacks, warn: Callable[[str], None]):
        run_dir, config = start.run_dir, start.config
        self.start, self.run_dir = start, run_dir
        self.checkpoints = run_dir / "checkpoints"
        self._stat = run_dir.stat()
        self._config_text = render_config(config)
        run = TrackedRun(run_dir, to_mapping(config), start.resumed_at, warn)
        super().__init__(config, callbacks, RunTrackers(run, config.run.track, config.run.tensorboard))
        self._restore_evaluations()

    def _restore_evaluations(self) -> None:
        if (saved := self.start.saved) is not None:
            self.best, self.last_evaluation = saved.best, saved.evaluation
            self.evaluation_steps = int(saved.info.get("evaluation_steps", 0))

    def result(self, calls: TimedCalls, compile_seconds: float, interrupted: int | None, seeds_together: int) -> Result:
        """The result of this session, whose updates were computed in ``calls``."""
        return Result(
            run_dir=self.run_dir,
            steps=self.start.step + calls.steps if self.stopped_at is None else self.stopped_at,
            seconds=calls.seconds,
            compile_seconds=compile_seconds,
            steps_per_second=calls.steps_per_second,
            evaluation_seconds=self.evaluation_seconds,
            return_mean=self.last_evaluation["return_mean"] if self.last_evaluation else self.window.recent_return,
            evaluation=self.last_evaluation,
            best=self.best,
            interrupted=None if self.stopped else interrupted,
            stopped=self.stopped,
            callbacks=self.callbacks.objects,
            resumed_at=self.start.step,
            seeds_together=seeds_together,
        )

    def fail(self, reason: str) -> None:
        saved = checkpoint.steps(self.checkpoints)
        last = f"the checkpoint of step {saved[-1]} is intact" if saved else "no checkpoint was saved yet"
        self.failure = TrainingError(f"{reason} Training has stopped; {last}.")
        with contextlib.suppress(OSError):  # for example a full disk; the reporter shows the reason anyway
            write_atomic(self.run_dir / FAILURE, f"{self.failure}\n")

    def stop(self, step: int) -> None:
        super().stop(step)
        with contextlib.suppress(OSError):
            write_atomic(self.run_dir / STOPPED, f"A callback has stopped the training at step {step}.\n")

    @property
    def _is_in_place(self) -> bool:
        """Whether the run directory was neither renamed nor removed."""
        try:
            return os.path.samestat(self.run_dir.stat(), self._stat)
        except OSError:
            return False

    def write(self, step: int, row: dict[str, float]) -> None:
        if self._is_in_place:
            super().write(step, row)

    def checkpoint_writer(self, step: int, state: TrainState) -> Callable[[], None] | None:
        """A function that writes a checkpoint, marks the best one and removes old ones.

        It raises ``CheckpointError`` if the checkpoint cannot be written, and ``RunDirectoryError`` if the run directory was renamed or removed.
        """
        info = {"best": self.best, "evaluation": self.last_evaluation, "evaluation_steps": self.evaluation_steps}
        if self.callbacks.objects:
            info["callbacks"] = self.callbacks.state()
        best = int(self.best["step"]) if self.best else None
        return functools.partial(self._write_checkpoint, step, encode(step, state, info, self._config_text), best)

    def _write_checkpoint(self, step: int, files: dict[str, bytes], best: int | None) -> None:
        if not self._is_in_place:
            raise RunDirectoryError(
                f"The run directory {self.run_dir} was removed or renamed during the training, so nothing more can be saved. "
                "If it was renamed, continue from its last checkpoint: use --resume with the new name."
            )
        self.trackers.flush()  # a resume continues from this step, so every tracker must have its rows
        checkpoint.write(self.checkpoints, step, files)
        try:
            if best == step:
                retention.mark_best(self.run_dir, step)
            retention.prune(self.checkpoints, self.config.run.keep_checkpoints, {best} if best is not None else set())
        except OSError as error:
            raise CheckpointError(
                f"Cannot write into {self.run_dir} ({error.strerror}): check its disk and its permissions."
            ) from error


class NoTracker(Tracker):
    """Ignores all rows."""

    def write(self, step: int, values: Mapping[str, Any]) -> None: ...


class FollowingSeedRun(StoredSeedRun):
    """A seed in a process that writes nothing: process 0 has the run directory."""

    def __init__(self, start: SeedStart, callbacks: SeedCallbacks, warn: Callable[[str], None]):
        self.start, self.run_dir = start, start.run_dir
        SeedRun.__init__(self, start.config, callbacks, NoTracker())
        self._restore_evaluations()

    def fail(self, reason: str) -> None:
        SeedRun.fail(self, reason)

    def stop(self, step: int) -> None:
        SeedRun.stop(self, step)

    def write(self, step: int, row: dict[str, float]) -> None:
        """Do nothing."""

    def checkpoint_writer(self, step: int, state: TrainState) -> None:
        """Nothing is saved."""


@contextlib.contextmanager
def locked(run_dirs: list[Path]) -> Iterator[None]:
    """Context manager: no other process may write into ``run_dirs``."""
    with contextlib.ExitStack() as stack:
        for run_dir in run_dirs:
            stack.enter_context(RunLock(run_dir))
        yield


@contextlib.contextmanager
def writable(run_dir: Path) -> Iterator[None]:
    """Context manager: an ``OSError`` becomes a ``RunDirectoryError`` that names ``run_dir``."""
    try:
        yield
    except OSError as error:
        raise RunDirectoryError(
            f"Cannot write into {run_dir} ({error.strerror}), so the training has not started: check its disk and its permissions."
        ) from error


@contextlib.contextmanager
def opened(
    seeds: list[tuple[SeedStart, SeedCallbacks]], warn: Callable[[str], None], writes: bool
) -> Iterator[list[StoredSeedRun]]:
    """Context manager: the seed runs of ``seeds`` with open trackers, which are closed at the end. ``writes``: whether this process writes."""
    with contextlib.ExitStack() as stack:
        seed_runs: list[StoredSeedRun] = []
        for start, callbacks in seeds:
            with writable(start.run_dir):
                kind = StoredSeedRun if writes else FollowingSeedRun
                seed_runs.append(kind(start, callbacks, warn))
            stack.callback(seed_runs[-1].close)
        # Called before every `close`, so that the trackers of all seeds close at the same time.
        stack.callback(lambda: [seed_run.trackers.end() for seed_run in seed_runs])
        yield seed_runs
