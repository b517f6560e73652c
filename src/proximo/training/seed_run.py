"""One seed of a training: its metrics, callbacks and evaluations; and the result that users receive for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.errors import TrainingError
from proximo.serialization import jsonable
from proximo.tracking.metrics_window import MetricsWindow
from proximo.tracking.tracker import Tracker, numbers
from proximo.training.callbacks import SeedCallbacks
from proximo.training.timed_calls import TimedCalls
from proximo.types import TrainState


@dataclass(frozen=True)
class Result:
    """What ``proximo.train`` and ``proximo.resume`` return for each seed.

    ``steps`` counts from the start of the run. ``seconds``, ``compile_seconds`` and ``steps_per_second`` are those of this session, without the
    time before a resume.
    """

    run_dir: Path
    """The run directory of the seed."""
    steps: int
    """Environment steps that the policy has learned from, with those before a resume."""
    seconds: float
    """Seconds of the updates, without compilation, evaluation and saving."""
    compile_seconds: float
    """Seconds of compilation."""
    steps_per_second: float
    """Environment steps per second of the updates."""
    evaluation_seconds: float
    """Seconds of the evaluations."""
    return_mean: float | None
    """Mean return of the last evaluation; without evaluations, of about the last hundred episodes. None if no episode has ended."""
    evaluation: dict[str, Any] | None = None
    """The last evaluation: ``step``, ``episodes``, ``return_mean`` and other statistics; None without evaluations."""
    best: dict[str, float] | None = None
    """``step`` and ``return_mean`` of the best evaluation, which ``RUN@best`` loads; None without evaluations."""
    interrupted: int | None = None
    """Number of the signal that stopped the training; None if none did."""
    stopped: bool = False
    """Whether a callback stopped the training."""
    callbacks: tuple[Any, ...] = ()
    """The callbacks of this seed: the given objects or, with several seeds, copies of them."""
    resumed_at: int = 0
    """Step that this session resumed from; 0 for a new run."""
    seeds_together: int = 1
    """Number of seeds that trained in one program, and share ``seconds`` and ``compile_seconds``."""

    def __repr__(self) -> str:
        reached = "no episode ended" if self.return_mean is None else f"return {self.return_mean:.4g}"
        best = "" if self.best is None else f", best {self.best['return_mean']:.4g} at step {self.best['step']:.0f}"
        ended = ", interrupted" if self.interrupted else ", stopped by a callback" if self.stopped else ""
        return f"Result({str(self.run_dir)!r}: {reached} after {self.steps} steps{best}{ended})"


class SeedRun:
    """One seed of a training: its window of metrics, its callbacks, its evaluations. This class saves nothing; ``StoredSeedRun`` does.
    ``trackers`` receive its rows, histograms and clips."""

    run_dir: Path | None = None

    def __init__(self, config: Config, callbacks: SeedCallbacks, trackers: Tracker):
        self.config, self.callbacks, self.trackers = config, callbacks, trackers
        self.window = MetricsWindow()
        """Metrics of the updates since the last row."""
        self.best: dict[str, float] | None = None
        self.last_evaluation: dict[str, Any] | None = None
        self.evaluation_seconds = 0.0
        """Seconds of the evaluations of this session."""
        self.evaluation_steps = 0
        """Environment steps of the evaluations before the end so far."""
        self.failure: TrainingError | None = None
        """The error, if NaN or infinity has ended the seed."""
        self.stopped_at: int | None = None
        """The step at which one of its callbacks has stopped it."""

    @property
    def stopped(self) -> bool:
        """Whether one of its callbacks has stopped it."""
        return self.stopped_at is not None

    @property
    def is_active(self) -> bool:
        """Whether the seed still trains: neither NaN or infinity nor a callback has ended it."""
        return self.failure is None and not self.stopped

    def fail(self, reason: str) -> None:
        """End the seed because of NaN or infinity."""
        self.failure = TrainingError(f"{reason} Training has stopped.")

    def stop(self, step: int) -> None:
        """End the seed at ``step`` because one of its callbacks asks for it."""
        self.stopped_at = step

    def add_metrics(self, metrics: dict[str, np.ndarray]) -> None:
        """Add the metrics of some updates: arrays with one entry for each update."""
        self.window.add(metrics)
        self.callbacks.add(metrics)

    def record(self, metrics: dict[str, np.ndarray], step: int, calls: TimedCalls) -> None:
        """Add the metrics of the last call, which began at ``step``, and write the rows that they fill."""
        count, begun = len(next(iter(metrics.values()))), 0
        while begun < count:
            size = min(self.config.updates_per_row - len(self.window), count - begun)
            self.add_metrics({name: x[begun : begun + size] for name, x in metrics.items()})
            begun += size
            if len(self.window) >= self.config.updates_per_row:
                self.write_window(step + begun * self.config.batch_size, calls, calls.last_updates - begun)

    def write_window(self, step: int, calls: TimedCalls, later: int = 0) -> None:
        """Write one row for the updates since the last row, if there are any. The last call has made ``later`` updates after them."""
        if len(self.window):
            seconds = calls.seconds - later * calls.last_seconds_per_update
            steps = calls.steps - later * self.config.batch_size
            time_columns = {"time/steps_per_second": steps / seconds if seconds else 0.0, "time/seconds": seconds}
            self.write(step, {**self.window.merge(), **time_columns})

    def write(self, step: int, row: dict[str, float]) -> None:
        """Write a row of metrics."""
        self.trackers.write(step, row)

    def checkpoint_writer(self, step: int, state: TrainState) -> Callable[[], None] | None:
        """A function that writes a checkpoint of ``state``; None if the seed saves nothing. Another thread may call it while the training goes
        on, because it has copies of all that it writes."""

    def close(self, hurry: bool = False) -> None:
        """Finish writing; with ``hurry``, without waiting long for trackers."""
        self.trackers.end(hurry)
        self.trackers.close()


def active(seed_runs: Sequence[SeedRun]) -> list[tuple[int, SeedRun]]:
    """The seeds that still train, with their index in the backend."""
    return [(i, seed_run) for i, seed_run in enumerate(seed_runs) if seed_run.is_active]


class InMemoryRows(Tracker):
    """Appends the rows of a ``PPO`` to the list ``rows``."""

    def __init__(self, rows: list[dict[str, Any]]):
        self.rows = rows

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        if row := numbers(values):
            self.rows.append({"step": step, **jsonable(row)})
