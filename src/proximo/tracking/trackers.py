"""The sinks of a run: those that ``track`` names, each isolated so that it can neither slow nor stop the training."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, SupportsFloat, cast

from proximo.config.validation import TRACKERS, tracker_names
from proximo.custom_code import imported
from proximo.errors import ConfigError, lacking, nearest
from proximo.serialization import read_json
from proximo.storage.run_directory import HISTOGRAMS, METRICS
from proximo.tracking.csv_table import CsvTable
from proximo.tracking.histograms import Histogram
from proximo.tracking.sinks import JsonLines, Sink, TensorBoard, TrackedRun, read_rows

PATIENCE_SECONDS, HURRY_SECONDS = 60.0, 3.0
"""How long the end of a training waits for a sink in the background; and if the user interrupted twice."""


def check(track: str) -> None:
    """Check that every sink that ``track`` names exists. Called before anything is compiled.

    Raises:
        ConfigError: the name of a sink is unknown, or leads to something that is not a sink.
        EnvError: the library of a sink is not installed.
    """
    for name in tracker_names(track):
        if name == "wandb":
            spec = importlib.util.find_spec("wandb")
            if spec is None or spec.origin is None:  # a folder of that name, which Weights & Biases creates, is not the library
                raise lacking("track = wandb", "wandb")
        elif name not in TRACKERS:
            _custom(name)


def _custom(name: str) -> Callable[[TrackedRun], Sink]:
    """The custom class that ``module:Class`` names. Raises ``ConfigError`` if it is not a sink."""
    module_name, _, class_name = name.rpartition(":")
    module = imported(module_name, f"track = {name!r}")
    found = getattr(module, class_name, None)
    if not callable(found) or not callable(getattr(found, "write", None)):
        what = f"nothing of that name{nearest(class_name, vars(module))}" if found is None else repr(found)
        raise ConfigError(
            f"track = {name!r}: expected a class with write(step, values) (docs/tracking.md has an example), found {what}."
        )
    return cast("Callable[[TrackedRun], Sink]", found)


class Sinks:
    """All sinks of a run directory. A sink that raises is dropped with a warning, because no sink may stop a training.

    Args:
        run: the run.
        track: names of sinks, as in the setting.
        tensorboard: whether TensorBoard events are written.

    Raises:
        OSError: ``metrics.jsonl`` or the events cannot be written, for example because the disk is full.
    """

    def __init__(self, run: TrackedRun, track: str, tensorboard: bool):
        self._warned = run.warned
        # metrics.jsonl comes first, because the others read missed rows from it.
        self._sinks: list[Sink] = [JsonLines(run.run_dir / METRICS, run.warned)]
        if tensorboard:
            self._sinks.append(TensorBoard(run.run_dir, None if run.resumed_at is None else run.resumed_at + 1, run.warned))
        self._sinks += [_open(name, run) for name in tracker_names(track)]

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Write a row of metrics to every sink."""
        self._each(lambda sink: sink.write(step, values))

    def write_histograms(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        """Write histograms to every sink."""
        self._each(lambda sink: sink.write_histograms(step, histograms))

    def write_clip(self, step: int, gif: Callable[[], bytes], size: tuple[int, int]) -> None:
        """Show an animated GIF of (height, width) pixels in every sink."""
        self._each(lambda sink: sink.write_clip(step, gif, size))

    def flush(self) -> None:
        """Make everything written so far survive the end of this process."""
        self._each(lambda sink: sink.flush())

    def end(self, hurry: bool = False) -> None:
        """Let the sinks in the background begin to finish; in a ``hurry`` with less time."""
        self._each(lambda sink: sink.end(hurry))

    def close(self) -> None:
        """Finish every sink."""
        self._each(lambda sink: sink.close())

    def _each(self, call: Callable[[Sink], None]) -> None:
        for sink in tuple(self._sinks):
            try:
                call(sink)
            except Exception as error:
                self._sinks.remove(sink)
                self._warned(_failure(type(sink).__name__, error))


def _failure(name: str, error: BaseException) -> str:
    reason = " ".join(str(error).split()) or "no reason given"
    return f"{name} has failed ({type(error).__name__}: {reason}): it receives no more rows, and the training continues."


def _open(name: str, run: TrackedRun) -> Sink:
    if name == "csv":
        return CsvTable(run)
    if name == "wandb":
        from proximo.tracking.weights_and_biases import WeightsAndBiases  # it imports the library in its own thread

        return Background(name, WeightsAndBiases, run)
    return Background(name, _custom(name), run)


class Background(Sink):
    """A sink that is created and called in its own thread. If it fails, it warns once and receives no more rows.

    ``.tracked-NAME.json`` records which rows the sink has. A resumed run therefore gives it the rows that it missed and skips those that it
    has: rows after the checkpoint are written again, and the sink already has them.
    """

    def __init__(self, name: str, make: Callable[[TrackedRun], Sink], run: TrackedRun):
        self.name, self.run, self.patience = name, run, PATIENCE_SECONDS
        self._failed = False
        self._ended_at: float | None = None
        self._queue: queue.SimpleQueue[tuple[str, tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._record = _Record(run.run_dir / f".tracked-{name.replace(':', '-')}.json", fresh=run.resumed_at is None)
        # Read now: rows that are written later come through the queue.
        missed = [] if run.resumed_at is None else _earlier(run.run_dir, run.resumed_at)
        self._thread = threading.Thread(target=self._work, args=(make, missed), name=f"track {name}", daemon=True)
        self._thread.start()

    def write(self, step: int, values: Any) -> None:
        """Pass the row to the thread."""
        self._put("write", step, dict(values))

    def write_histograms(self, step: int, histograms: Any) -> None:
        """Pass the histograms to the thread."""
        self._put("write_histograms", step, dict(histograms))

    def flush(self) -> None:
        """Pass the request to the thread, without waiting: a resume writes the rows that were missed."""
        self._put("flush")

    def end(self, hurry: bool = False) -> None:
        """Let the thread finish. Its time, ``patience``, runs from the first call on, beside that of all other sinks."""
        if hurry:
            self.patience = HURRY_SECONDS
        if self._ended_at is None:
            self._ended_at = time.monotonic()
            self._queue.put(None)

    def close(self) -> None:
        """Wait until everything is written, at most until the ``patience`` ends."""
        self.end()
        assert self._ended_at is not None
        self._thread.join(max(0.0, self._ended_at + self.patience - time.monotonic()))
        if self._thread.is_alive() and not self._failed:
            self.run.warned(
                f"{self.name} has not written everything within {self.patience:.0f} s: the last rows may be missing there."
            )

    def _put(self, method: str, *arguments: Any) -> None:
        if not self._failed:
            self._queue.put((method, arguments))

    def _work(self, make: Callable[[TrackedRun], Sink], missed: list[tuple[str, tuple[Any, ...]]]) -> None:
        try:
            sink = make(self.run)
            if getattr(sink, "knows_its_rows", False):
                self._record.forget()
            for method, arguments in missed:
                self._pass_on(sink, method, arguments)
            while (item := self._queue.get()) is not None:
                self._pass_on(sink, *item)
            getattr(sink, "close", _nothing)()
        except (Exception, SystemExit) as error:
            self._failed = True
            self.run.warned(_failure(self.name, error))

    def _pass_on(self, sink: Sink, method: str, arguments: tuple[Any, ...]) -> None:
        if method == "flush":
            getattr(sink, "flush", _nothing)()
        elif self._record.is_new(method, arguments[0]):
            getattr(sink, method, _nothing)(*arguments)
            self._record.note(method, arguments[0])


def _nothing(*_: Any) -> None:
    """Stands for methods that a custom sink does not define."""


def _earlier(run_dir: Path, step: int) -> list[tuple[str, tuple[Any, ...]]]:
    """All rows up to ``step``, by step."""
    rows: list[tuple[str, tuple[Any, ...]]] = []
    for row in read_rows(run_dir / METRICS):
        values = {name: float("nan") if value is None else value for name, value in row.items() if name != "step"}
        rows.append(("write", (row["step"], values)))
    for row in read_rows(run_dir / HISTOGRAMS):
        made = {name: Histogram.from_json(value) for name, value in row.items() if name != "step"}
        rows.append(("write_histograms", (row["step"], made)))
    return sorted((row for row in rows if row[1][0] <= step), key=lambda row: row[1][0])


class _Record:
    """Which rows a sink has: for each kind the last step, and how many rows of that step (one of the training, one of an evaluation)."""

    def __init__(self, path: Path, fresh: bool):
        self._path = path
        self._last: dict[str, tuple[int, int]] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        """The same for the rows of this session."""
        if not fresh:
            with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
                self._last = {kind: (int(step), int(count)) for kind, (step, count) in read_json(path.read_bytes()).items()}

    def forget(self) -> None:
        """Treat every row as new."""
        self._last = {}

    def is_new(self, kind: str, step: int) -> bool:
        """Whether the sink lacks this row, the next one of its kind."""
        before, count = self._seen.get(kind, (-1, 0))
        self._seen[kind] = (step, count + 1 if step == before else 1)
        return self._seen[kind] > self._last.get(kind, (-1, 0))

    def note(self, kind: str, step: int) -> None:
        """Record that the sink has the row."""
        self._last[kind] = self._seen[kind]
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        # Without fsync, each row is written faster. A power failure may repeat a row.
        temporary.write_text(json.dumps(self._last))
        os.replace(temporary, self._path)
