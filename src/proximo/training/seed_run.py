"""One seed of a training: its metrics, callbacks, evaluations and files, and the result."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from proximo.config import Config, to_mapping
from proximo.errors import CheckpointError, TrainingError
from proximo.evaluation.episodes import Episodes
from proximo.serialization import jsonable
from proximo.storage import checkpoint
from proximo.storage.atomic_files import write_atomic
from proximo.storage.checkpoint import Checkpoint, encode
from proximo.storage.run_directory import FAILURE, STOPPED, render_config, writing
from proximo.tracking.metrics_window import MetricsWindow
from proximo.tracking.run_trackers import RunTrackers
from proximo.tracking.tracker import TrackedRun, Tracker, numbers
from proximo.training.backend import TimedCalls
from proximo.training.callbacks import SeedCallbacks
from proximo.types import TrainState

EVALUATED = ("return_mean", "return_std", "return_iqm", "team_return_mean", "length_mean", "success_rate")
"""The statistics of an evaluation in its row."""


@dataclass(frozen=True)
class Result:
    """What ``proximo.train`` and ``proximo.resume`` return for each seed.

    ``seconds``, ``compile_seconds`` and ``steps_per_second`` do not include the time before a resume.
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
    num_agents: int = 1
    """Agents of an environment. ``num_agents * steps_per_second`` counts the steps of all."""
    resumed_at: int = 0
    """Step that this session resumed from; 0 for a new run."""
    seeds_together: int = 1
    """Number of seeds that trained in one program, and share ``seconds`` and ``compile_seconds``."""

    def __repr__(self) -> str:
        reached = "no episode ended" if self.return_mean is None else f"return {self.return_mean:.4g}"
        best = "" if self.best is None else f", best {self.best['return_mean']:.4g} at step {self.best['step']:.0f}"
        ended = ", interrupted" if self.interrupted else ", stopped by a callback" if self.stopped else ""
        return f"Result({str(self.run_dir)!r}: {reached} after {self.steps} steps{best}{ended})"


class NoTracker(Tracker):
    """Ignores all rows."""

    def write(self, step: int, values: Mapping[str, Any]) -> None: ...


class InMemoryRows(Tracker):
    """Appends the rows of a ``PPO`` to the list ``rows``."""

    def __init__(self, rows: list[dict[str, Any]]):
        self.rows = rows

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        if row := numbers(values):
            self.rows.append({"step": step, **jsonable(row)})


class SeedRun:
    """One seed of a training. It writes nothing before ``open``, which only process 0 calls. A resumed run continues at
    the step ``resumed_at``. If it has a checkpoint, ``info`` is the checkpoint's, and ``saved`` is the checkpoint, in process 0 only."""

    def __init__(
        self, config: Config, run_dir: Path | None = None, resumed_at: int | None = None, info: dict[str, Any] | None = None
    ):
        self.config, self.run_dir, self.resumed_at, self.info = config, run_dir, resumed_at, info
        self.step = resumed_at or 0  # environment steps of the first state
        self.index: int  # number of the seed in the backend; set by `Training`
        self.calls: TimedCalls  # the calls that compute its updates; set by `Training`
        self.saved: Checkpoint | None = None
        self.callbacks = SeedCallbacks()
        self.writes = False
        self.trackers: Tracker = NoTracker()  # receives its rows, histograms and clips
        self.window = MetricsWindow()  # metrics of the updates since the last row
        found = info or {}
        self.best: dict[str, float] | None = found.get("best")
        self.last_evaluation: dict[str, Any] | None = found.get("evaluation")
        self.evaluation_seconds = 0.0  # of this session
        self.evaluation_steps = int(found.get("evaluation_steps", 0))
        """Environment steps of all evaluations before the end."""
        self.failure: TrainingError | None = None  # the error, if NaN or infinity has ended the seed
        self.stopped_at: int | None = None  # the step at which one of its callbacks has stopped it

    @property
    def folder(self) -> Path:
        assert self.run_dir is not None
        return self.run_dir

    def open(self, warn: Callable[[str], None]) -> None:
        """Write into the folder. ``warn`` receives warnings. Raises ``OSError`` if a tracker cannot write."""
        run = TrackedRun(self.folder, to_mapping(self.config), self.resumed_at, warn)
        self.trackers, self.writes = RunTrackers(run, self.config.run.track, self.config.run.tensorboard), True

    @property
    def is_active(self) -> bool:
        return self.failure is None and self.stopped_at is None

    def is_best_at(self, step: int) -> bool:
        return self.best is not None and self.best["step"] == step

    def fail(self, reason: str) -> None:
        saved = checkpoint.steps(self.run_dir / "checkpoints") if self.run_dir else []
        last = f"; the checkpoint of step {saved[-1]} is intact" if saved else "; no checkpoint was saved yet"
        self.failure = TrainingError(f"{reason} Training has stopped{last if self.writes else ''}.")
        self.mark(FAILURE, f"{self.failure}\n")

    def stop(self, step: int) -> None:
        self.stopped_at = step
        self.mark(STOPPED, f"A callback has stopped the training at step {step}.\n")

    def mark(self, name: str, text: str) -> None:
        """Write how the seed has ended into the file ``name`` of its run directory."""
        if self.writes:
            with contextlib.suppress(OSError):  # for example a full disk; the reporter shows the reason anyway
                write_atomic(self.folder / name, text)

    def record(self, metrics: dict[str, np.ndarray], step: int) -> None:
        """Add the metrics of the last call, which began at ``step``, and write the rows that they fill."""
        count, begun = len(next(iter(metrics.values()))), 0
        while begun < count:
            size = min(self.config.updates_per_row - len(self.window), count - begun)
            part = {name: x[begun : begun + size] for name, x in metrics.items()}
            self.window.add(part)
            self.callbacks.add(part)
            begun += size
            if len(self.window) >= self.config.updates_per_row:
                self.write_window(step + begun * self.config.batch_size, self.calls.last_updates - begun)

    def write_window(self, step: int, later: int = 0) -> None:
        """Write one row for the updates in the window, if any. The last call did ``later`` more after them."""
        if len(self.window):
            seconds = self.calls.seconds - later * self.calls.last_seconds_per_update
            steps = self.calls.steps - later * self.config.batch_size
            time_columns = {"time/steps_per_second": steps / seconds if seconds else 0.0, "time/seconds": seconds}
            if (agents := self.calls.num_agents) > 1:
                time_columns["time/agent_steps_per_second"] = agents * time_columns["time/steps_per_second"]
            self.trackers.write(step, {**self.window.merge(), **time_columns})

    def evaluated(self, step: int, episodes: Episodes, seconds: float, is_last: bool) -> dict[str, Any]:
        """Write the row of an evaluation, and remember it. Returns its summary."""
        self.evaluation_seconds += seconds
        if not is_last:
            self.evaluation_steps += episodes.environment_steps
        self.last_evaluation = {"step": step, **episodes.summary()}
        row = {f"eval/{name}": x for name in EVALUATED if (x := self.last_evaluation.get(name)) is not None}
        self.trackers.write(step, {**row, "time/evaluation_seconds": self.evaluation_seconds})
        reached = self.last_evaluation["return_mean"]
        # NaN is never the best, because no later evaluation would compare as better.
        if np.isfinite(reached) and (self.best is None or reached >= self.best["return_mean"]):
            self.best = {"step": step, "return_mean": reached}
        return self.last_evaluation

    def checkpoint_writer(self, step: int, state: TrainState) -> Callable[[], None] | None:
        """A function that writes a checkpoint of ``state``, marks the best one and removes old ones; None if the seed saves
        nothing. It has copies of all that it writes, and raises ``CheckpointError`` if it cannot write."""
        if not self.writes:
            return None
        info = {"best": self.best, "evaluation": self.last_evaluation, "evaluation_steps": self.evaluation_steps}
        if self.callbacks.objects:
            info["callbacks"] = self.callbacks.state()
        best = int(self.best["step"]) if self.best else None
        files, folder = encode(step, state, info, render_config(self.config)), self.folder / "checkpoints"

        def write() -> None:
            self.trackers.flush()  # a resume continues from this step, so every tracker must have its rows
            checkpoint.write(folder, step, files)
            with writing(self.folder, CheckpointError):
                if best == step:
                    checkpoint.mark_best(self.folder, step)
                checkpoint.keep(folder, [*checkpoint.steps(folder)[-self.config.run.keep_checkpoints :], best])

        return write

    def result(self, compile_seconds: float, interrupted: int | None, seeds_together: int) -> Result:
        calls = self.calls
        return Result(
            run_dir=self.folder,
            steps=self.step + calls.steps if self.stopped_at is None else self.stopped_at,
            seconds=calls.seconds,
            compile_seconds=compile_seconds,
            steps_per_second=calls.steps / calls.seconds if calls.seconds else 0.0,
            evaluation_seconds=self.evaluation_seconds,
            return_mean=self.last_evaluation["return_mean"] if self.last_evaluation else self.window.recent_mean("return_mean"),
            evaluation=self.last_evaluation,
            best=self.best,
            interrupted=interrupted if self.stopped_at is None else None,
            stopped=self.stopped_at is not None,
            callbacks=self.callbacks.objects,
            num_agents=calls.num_agents,
            resumed_at=self.step,
            seeds_together=seeds_together,
        )
