"""A seed of a training with a run directory: checkpoints, rows, histograms and clips on the disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from proximo.config import Config, to_mapping
from proximo.errors import CheckpointError, RunDirectoryError, TrainingError, command
from proximo.storage import checkpoint, retention, run_directory
from proximo.storage.atomic_files import write_atomic
from proximo.storage.run_directory import FAILURE, METRICS, RunLock
from proximo.tracking.histograms import Histogram
from proximo.tracking.sinks import JsonLines, TrackedRun
from proximo.tracking.trackers import Sinks
from proximo.training.callbacks import Listeners
from proximo.training.seed_run import SeedRun
from proximo.types import TrainState


class StoredSeedRun(SeedRun):
    """A seed with a run directory: checkpoints, and sinks for its metrics.

    Args:
        run_dir: its run directory.
        config: settings of this seed.
        listeners: its callbacks.
        resumed_at: step of the checkpoint that is resumed; None for a new run.
        warn: receives warnings of sinks that fail.
    """

    run_dir: Path

    def __init__(
        self,
        run_dir: Path,
        config: Config,
        listeners: Listeners,
        resumed_at: int | None,
        warn: Callable[[str], None] = lambda message: None,
    ):
        super().__init__(config, listeners)
        self.run_dir = run_dir
        self.checkpoints = run_dir / "checkpoints"
        self._folder = run_dir.stat()
        self._unwritten: list[tuple[int, dict[str, float]]] = []
        """Rows that came after the run folder was renamed or removed."""
        (run_dir / FAILURE).unlink(missing_ok=True)
        self.sinks = Sinks(TrackedRun(run_dir, to_mapping(config), resumed_at, warn), config.run.track, config.run.tensorboard)

    def fail(self, reason: str) -> None:
        saved = checkpoint.steps(self.checkpoints)
        last = f"the checkpoint of step {saved[-1]} is intact" if saved else "no checkpoint was saved yet"
        self.failure = TrainingError(f"{reason} Training has stopped; {last}.")
        with contextlib.suppress(OSError):  # for example a full disk; the reporter shows the reason anyway
            write_atomic(self.run_dir / FAILURE, f"{self.failure}\n")

    @property
    def place(self) -> Path | None:
        return run_directory.place_of(self.run_dir, self._folder)

    def write(self, step: int, row: dict[str, float]) -> None:
        if self.place == self.run_dir:
            self.sinks.write(step, row)
        else:
            self._unwritten.append((step, row))

    def write_histograms(self, step: int, made: dict[str, Histogram]) -> None:
        self.sinks.write_histograms(step, made)

    def write_clip(self, step: int, gif: Callable[[], bytes], size: tuple[int, int]) -> None:
        self.sinks.write_clip(step, gif, size)

    def save(self, step: int, state: TrainState) -> None:
        """Save a checkpoint, mark the best one and remove old ones.

        Raises:
            CheckpointError: the checkpoint cannot be written.
            RunDirectoryError: the run folder was renamed (the checkpoint is saved in the renamed one) or removed.
        """
        place = self.place
        if place is None:
            raise self._moved(None)
        if place == self.run_dir:
            self.sinks.flush()  # a resume continues from this step, so every sink must have its rows
        else:
            lines = JsonLines(place / METRICS)
            while self._unwritten:
                lines.write(*self._unwritten.pop(0))
            lines.flush()
        info = {"best": self.best, "evaluation": self.last_evaluation, "total_steps": self.config.ppo.total_steps}
        if self.listeners.callbacks:
            info["callbacks"] = self.listeners.state()
        checkpoints = place / "checkpoints"
        checkpoint.save(checkpoints, step, state, info)
        best = int(self.best["step"]) if self.best else None
        try:
            if best == step:
                retention.mark_best(place, step)
            retention.prune(checkpoints, self.config.run.keep_checkpoints, {best} if best is not None else set())
        except OSError as error:
            raise CheckpointError(f"Cannot write into {place} ({error.strerror}): check its disk and its permissions.") from error
        if place != self.run_dir:
            raise self._moved(place)

    def _moved(self, place: Path | None) -> RunDirectoryError:
        """The error for a run folder that was renamed to ``place``, or was removed (None)."""
        if place is None:
            return RunDirectoryError(
                f"The run folder {self.run_dir} was removed or renamed during the training, so nothing more can be saved. "
                "If it was renamed, continue from its last checkpoint: use --resume with the new name."
            )
        return RunDirectoryError(
            f"The run folder {self.run_dir} was renamed to {place} during the training, and the training is saved there. "
            f"Go on with: {command('proximo', 'train', '--resume', place)}"
        )

    def start_closing(self) -> None:
        """Let the sinks that close in the background start to do so."""
        self.sinks.end()

    def close(self, hurry: bool = False) -> None:
        self.sinks.end(hurry)
        self.sinks.close()


@contextlib.contextmanager
def locked(run_dirs: list[Path]) -> Iterator[None]:
    """Context manager: no other process may write into ``run_dirs``."""
    with contextlib.ExitStack() as stack:
        for run_dir in run_dirs:
            stack.enter_context(RunLock(run_dir))
        yield


@contextlib.contextmanager
def writable(run_dir: Path) -> Iterator[None]:
    """Context manager: an ``OSError`` becomes a ``RunDirectoryError`` that says that ``run_dir`` cannot be written."""
    try:
        yield
    except OSError as error:
        raise RunDirectoryError(
            f"Cannot write into {run_dir} ({error.strerror}), so the training has not started: check its disk and its permissions."
        ) from error


@contextlib.contextmanager
def opened(
    run_dirs: list[Path],
    configs: list[Config],
    listeners: list[Listeners],
    resumed_at: int | None = None,
    warn: Callable[[str], None] = lambda message: None,
) -> Iterator[list[StoredSeedRun]]:
    """Context manager: the seed runs of ``run_dirs`` with open sinks, which are closed at the end."""
    with contextlib.ExitStack() as stack:
        seed_runs: list[StoredSeedRun] = []
        for run_dir, config, listening in zip(run_dirs, configs, listeners, strict=True):
            with writable(run_dir):
                seed_runs.append(StoredSeedRun(run_dir, config, listening, resumed_at, warn))
            stack.callback(seed_runs[-1].close)
        # Called before every `close`, so that the sinks of all seeds close at the same time.
        stack.callback(lambda: [seed_run.start_closing() for seed_run in seed_runs])
        yield seed_runs
