"""One seed of a training: what it writes, what it has reached, and the run directory that is its own for the while."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proximo.config import Config, to_mapping
from proximo.errors import TrainingError
from proximo.run import checkpoint, retention, tracking
from proximo.run.directory import FAILURE, RunLock
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
    interrupted: int | None = None
    """The signal that ended it early, if one did."""


class Member:
    """One seed: its run directory, sinks, window of metrics, and best evaluation so far."""

    def __init__(
        self,
        run_dir: Path,
        config: Config,
        resumed_at: int | None,
        warned: Callable[[str], None] = lambda message: None,
    ):
        self.run_dir, self.config = run_dir, config
        self.checkpoints = run_dir / "checkpoints"
        self.window = Window()
        self.best: dict[str, float] | None = None
        self.last_evaluation: dict[str, Any] | None = None
        self.failure: TrainingError | None = None
        (run_dir / FAILURE).unlink(missing_ok=True)
        # First, because others read what they have missed from these files.
        self.sinks: list[Sink] = [JsonLines(run_dir / METRICS, run_dir / HISTOGRAMS)]
        if config.run.tensorboard:
            self.sinks.append(TensorBoard(run_dir, None if resumed_at is None else resumed_at + 1))
        self.sinks += tracking.opened(config.run.track, TrackedRun(run_dir, to_mapping(config), resumed_at, warned))

    def write(self, step: int, row: dict[str, float]) -> None:
        for sink in self.sinks:
            sink.write(step, row)

    def write_histograms(self, step: int, made: dict[str, Histogram]) -> None:
        for sink in self.sinks:
            sink.write_histograms(step, made)

    def show(self, step: int, gif: Callable[[], bytes], size: tuple[int, int]) -> None:
        """A clip, as an animated gif of (height, width) pixels, to the sinks."""
        for sink in self.sinks:
            sink.write_clip(step, gif, size)

    def save(self, step: int, state: TrainState) -> None:
        """Checkpoint, note the best one, drop the old ones."""
        for sink in self.sinks:  # what a resume goes on from must be told of everywhere
            sink.flush()
        info = {"best": self.best, "evaluation": self.last_evaluation, "total_steps": self.config.ppo.total_steps}
        checkpoint.save(self.checkpoints, step, state, info)
        best = int(self.best["step"]) if self.best else None
        if best == step:
            retention.mark_best(self.run_dir, step)
        retention.prune(self.checkpoints, self.config.run.keep_checkpoints, {best} if best is not None else set())

    def end(self) -> None:
        """Let those sinks that close in the background begin with it."""
        for sink in self.sinks:
            if isinstance(sink, tracking.Background):
                sink.end()

    def close(self, hurry: bool = False) -> None:
        """Close the sinks; in a ``hurry`` without waiting long for what is uploaded."""
        for sink in self.sinks:
            if isinstance(sink, tracking.Background) and hurry:
                sink.patience = tracking.HURRY_SECONDS
            sink.close()


@contextlib.contextmanager
def locked(run_dirs: list[Path]):
    """``run_dirs`` are this process's alone, until the end, whatever happens."""
    with contextlib.ExitStack() as stack:
        for run_dir in run_dirs:
            stack.enter_context(RunLock(run_dir))
        yield


@contextlib.contextmanager
def opened(
    run_dirs: list[Path],
    configs: list[Config],
    resumed_at: int | None = None,
    warned: Callable[[str], None] = lambda message: None,
):
    """Members of ``run_dirs``, with open sinks; closed in the end, whatever happens. ``warned`` is told of sinks that fail."""
    with contextlib.ExitStack() as stack:
        members = []
        for run_dir, config in zip(run_dirs, configs, strict=True):
            members.append(Member(run_dir, config, resumed_at, warned))
            stack.callback(members[-1].close)
        stack.callback(lambda: [member.end() for member in members])  # first of all: they take their time together
        yield members
