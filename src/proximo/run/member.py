"""One seed of a training: what it writes, what it has reached, and the run directory that is its own for the while."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proximo.config import Config, to_mapping
from proximo.errors import CheckpointError, RunDirectoryError, TrainingError, command
from proximo.run import checkpoint, directory, retention, tracking
from proximo.run.callbacks import Listeners
from proximo.run.directory import FAILURE, RunLock
from proximo.run.files import write_atomic
from proximo.run.histograms import Histogram
from proximo.run.progress import Window
from proximo.run.sinks import HISTOGRAMS, METRICS, JsonLines, Sink, TensorBoard, TrackedRun
from proximo.types import TrainState


@dataclass(frozen=True)
class Result:
    """What a training gave: the steps of this session, without those before a resume, and the seconds of its updates.
    ``mean_return`` is the last evaluation's, or without any that of the last episodes."""

    run_dir: Path
    steps: int
    seconds: float
    compile_seconds: float
    steps_per_second: float
    mean_return: float | None
    best: dict[str, float] | None = None
    """The best evaluation, ``step`` and ``mean_return``, which ``RUN/best`` points at; None without any."""
    interrupted: int | None = None
    """The signal that ended it early, if one did."""
    stopped: bool = False
    """Whether a callback has ended it early."""
    callbacks: tuple[Any, ...] = ()
    """Those of this seed: the objects that were given or, of several seeds, copies of them."""


class Member:
    """One seed: its window of metrics, its callbacks, and the best evaluation so far. This one keeps nothing on a disk."""

    run_dir: Path | None = None

    def __init__(self, config: Config, listeners: Listeners):
        self.config, self.listeners = config, listeners
        self.window = Window()
        self.best: dict[str, float] | None = None
        self.last_evaluation: dict[str, Any] | None = None
        self.failure: TrainingError | None = None
        self.stopped = False
        """Whether a callback has ended it."""

    @property
    def place(self) -> Path | None:
        """Current path of its run folder, also after a rename; None if it has none."""
        return self.run_dir

    @property
    def goes_on(self) -> bool:
        """Whether neither NaN or infinity nor a callback has ended it."""
        return self.failure is None and not self.stopped

    def fail(self, reason: str) -> None:
        """NaN or infinity has ended it; what stands is said behind the ``reason``."""
        self.failure = TrainingError(f"{reason} Training has stopped.")

    def write(self, step: int, row: dict[str, float]) -> None:
        """A row of metrics."""

    def write_histograms(self, step: int, made: dict[str, Histogram]) -> None:
        """Histograms of an update."""

    def show(self, step: int, gif: Callable[[], bytes], size: tuple[int, int]) -> None:
        """A clip, as an animated gif of (height, width) pixels."""

    def save(self, step: int, state: TrainState) -> None:
        """What stands behind ``step``."""

    def close(self, hurry: bool = False) -> None:
        """Nothing is written from now on; in a ``hurry`` without waiting long."""


class RunMember(Member):
    """A seed with a run directory: checkpoints and sinks."""

    run_dir: Path

    def __init__(
        self,
        run_dir: Path,
        config: Config,
        listeners: Listeners,
        resumed_at: int | None,
        warned: Callable[[str], None] = lambda message: None,
    ):
        super().__init__(config, listeners)
        self.run_dir = run_dir
        self.checkpoints = run_dir / "checkpoints"
        self._warned = warned
        self._folder = run_dir.stat()
        self._late: list[tuple[int, dict[str, float]]] = []
        """Rows that were written after the run folder was renamed or removed."""
        (run_dir / FAILURE).unlink(missing_ok=True)
        # First, because others read what they have missed from these files.
        self.sinks: list[Sink] = [JsonLines(run_dir / METRICS, run_dir / HISTOGRAMS, warned)]
        if config.run.tensorboard:
            self.sinks.append(TensorBoard(run_dir, None if resumed_at is None else resumed_at + 1, warned))
        self.sinks += tracking.opened(config.run.track, TrackedRun(run_dir, to_mapping(config), resumed_at, warned))

    def fail(self, reason: str) -> None:
        kept = checkpoint.steps(self.checkpoints)
        stands = f"the checkpoint of step {kept[-1]} stands" if kept else "no checkpoint was saved yet"
        self.failure = TrainingError(f"{reason} Training has stopped; {stands}.")
        with contextlib.suppress(OSError):  # for example a full disk; the reporter shows the reason anyway
            write_atomic(self.run_dir / FAILURE, f"{self.failure}\n")

    @property
    def place(self) -> Path | None:
        return directory.place_of(self.run_dir, self._folder)

    def write(self, step: int, row: dict[str, float]) -> None:
        if self.place == self.run_dir:
            self._each("write", step, row)
        else:
            self._late.append((step, row))

    def write_histograms(self, step: int, made: dict[str, Histogram]) -> None:
        self._each("write_histograms", step, made)

    def show(self, step: int, gif: Callable[[], bytes], size: tuple[int, int]) -> None:
        self._each("write_clip", step, gif, size)

    def _each(self, method: str, *arguments: Any) -> None:
        """Call ``method`` of every sink. A sink that raises is removed with a warning, because no sink may stop a training."""
        for sink in tuple(self.sinks):
            try:
                getattr(sink, method)(*arguments)
            except Exception as error:
                self.sinks = [other for other in self.sinks if other is not sink]
                what = " ".join(str(error).split()) or "no reason given"
                self._warned(
                    f"{type(sink).__name__} has failed ({type(error).__name__}: {what}): it receives no more rows, and the training continues."
                )

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
            self._each("flush")  # a resume continues from this step, so every sink must have its rows
        else:
            lines = JsonLines(place / METRICS)
            while self._late:
                lines.write(*self._late.pop(0))
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

    def end(self) -> None:
        """Let those sinks that close in the background begin with it."""
        for sink in self.sinks:
            if isinstance(sink, tracking.Background):
                sink.end()

    def close(self, hurry: bool = False) -> None:
        for sink in self.sinks:
            if isinstance(sink, tracking.Background) and hurry:
                sink.patience = tracking.HURRY_SECONDS
        self._each("close")


@contextlib.contextmanager
def locked(run_dirs: list[Path]):
    """``run_dirs`` are this process's alone, until the end, whatever happens."""
    with contextlib.ExitStack() as stack:
        for run_dir in run_dirs:
            stack.enter_context(RunLock(run_dir))
        yield


@contextlib.contextmanager
def writable(run_dir: Path):
    """Turn an ``OSError`` into a ``RunDirectoryError``: ``run_dir`` cannot be written, for example because the disk is full."""
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
    warned: Callable[[str], None] = lambda message: None,
):
    """Members of ``run_dirs``, with open sinks; closed in the end, whatever happens. ``warned`` is told of sinks that fail."""
    with contextlib.ExitStack() as stack:
        members = []
        for run_dir, config, heard in zip(run_dirs, configs, listeners, strict=True):
            with writable(run_dir):
                members.append(RunMember(run_dir, config, heard, resumed_at, warned))
            stack.callback(members[-1].close)
        stack.callback(lambda: [member.end() for member in members])  # first of all: they take their time together
        yield members
