"""The trackers of a run: ``metrics.jsonl``, and one queue for TensorBoard and the trackers that ``track`` names."""

from __future__ import annotations

import importlib.util
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from proximo.config.validation import TRACKERS, tracker_names
from proximo.custom_code import imported
from proximo.errors import ConfigError, lacking, nearest
from proximo.storage.run_directory import HISTOGRAMS, METRICS
from proximo.tracking.histograms import Histogram
from proximo.tracking.json_lines import JsonLines, read_rows
from proximo.tracking.tracker import CLIP, Clip, TrackedRun, Tracker

MODULES = {
    "csv": "proximo.tracking.csv_table:CsvTable",
    "wandb": "proximo.tracking.weights_and_biases:WeightsAndBiases",
    "TensorBoard": "proximo.tracking.tensorboard:TensorBoard",
}
"""Imported in the thread of the trackers, because their libraries take long to import."""
PATIENCE_SECONDS, HURRY_SECONDS = 60.0, 3.0
"""How long the end of a training waits for the trackers: normally, and after a second interruption by the user."""
FLUSH_SECONDS = 1.0
"""How long a checkpoint waits until the queue is empty. If that was too short, later checkpoints do not wait before it is empty."""
Row = tuple[int, Mapping[str, Any]]


def check_trackers(track: str) -> None:
    """Check that every tracker that ``track`` names exists, before anything is compiled. Raises ``ConfigError`` if it does not, and
    ``EnvError`` if its library is not installed."""
    for name in tracker_names(track):
        if name == "wandb":
            spec = importlib.util.find_spec("wandb")
            if spec is None or spec.origin is None:  # a folder of that name, which Weights & Biases creates, is not the library
                raise lacking("track = wandb", "wandb")
        elif name not in TRACKERS:
            tracker_class(name)


def tracker_class(name: str) -> Callable[[TrackedRun], Tracker]:
    """The class of a tracker. Raises ``ConfigError`` if ``module:Class`` is not a tracker."""
    module_name, _, class_name = MODULES.get(name, name).rpartition(":")
    module = imported(module_name, f"track = {name!r}")
    found = getattr(module, class_name, None)
    if not callable(found) or not callable(getattr(found, "write", None)):
        what = f"nothing of that name{nearest(class_name, vars(module))}" if found is None else repr(found)
        raise ConfigError(
            f"track = {name!r}: expected a class with write(step, values) (docs/tracking.md has an example), found {what}."
        )
    return cast("Callable[[TrackedRun], Tracker]", found)


class RunTrackers(Tracker):
    """Writes ``metrics.jsonl``. A thread passes all rows to the other trackers, so that they can neither slow nor stop the training. After a
    resume, it first passes the earlier rows. A tracker that raises is dropped with a warning.

    ``track`` has the names of trackers, as in the setting. Raises ``OSError`` if ``metrics.jsonl`` cannot be written, for example because
    the disk is full.
    """

    def __init__(self, run: TrackedRun, track: str, tensorboard: bool):
        self._run, self.patience = run, PATIENCE_SECONDS
        self._lines = JsonLines(run.run_dir / METRICS, run.warned)
        self._names = [*(["TensorBoard"] if tensorboard else []), *tracker_names(track)]
        self._busy = ""
        """The tracker that works now."""
        self._ended_at: float | None = None
        self._queue: queue.SimpleQueue[Row | threading.Event | None] = queue.SimpleQueue()
        self._flushed = threading.Event()
        self._flushed.set()
        self._thread = threading.Thread(target=self._work, daemon=True, name="trackers")
        if self._names:
            for row in earlier_rows(run.run_dir, run.resumed_at):
                self._queue.put(row)
            self._thread.start()

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        self._lines.write(step, values)
        if self._names:
            self._queue.put((step, values))

    def flush(self) -> None:
        self._lines.flush()
        if self._names and self._flushed.is_set():
            self._flushed = threading.Event()
            self._queue.put(self._flushed)
            self._flushed.wait(FLUSH_SECONDS)

    def end(self, hurry: bool = False) -> None:
        """Begin to finish. The ``patience`` starts with the first call, so that the trackers of all seeds finish at the same time."""
        if hurry:
            self.patience = HURRY_SECONDS
        if self._ended_at is None:
            self._ended_at = time.monotonic()
            self._queue.put(None)

    def close(self) -> None:
        """Wait until everything is written, at most until the ``patience`` ends."""
        self.end()
        self._lines.close()
        if self._names and self._ended_at is not None:
            self._thread.join(max(0.0, self._ended_at + self.patience - time.monotonic()))
            if self._thread.is_alive():
                waited = f"{self._busy} has not written everything within {self.patience:.0f} s"
                self._run.warned(f"{waited}: the last rows may be missing in {', '.join(self._names)}.")

    def _work(self) -> None:
        trackers: dict[str, Any] = dict.fromkeys(self._names)

        def each(call: Callable[[str], Any]) -> None:
            for name in tuple(trackers):
                self._busy = name
                try:
                    call(name)
                except (Exception, SystemExit) as error:
                    del trackers[name]
                    reason = " ".join(str(error).split()) or "no reason given"
                    failed = f"{name} has failed ({type(error).__name__}: {reason})"
                    self._run.warned(f"{failed}: it receives no more rows, and the training continues.")

        each(lambda name: trackers.update({name: tracker_class(name)(self._run)}))
        while (row := self._queue.get()) is not None:
            if isinstance(row, threading.Event):
                each(lambda name: trackers[name].flush() if hasattr(trackers[name], "flush") else None)
                row.set()
            else:
                each(lambda name, row=row: trackers[name].write(*row))
        each(lambda name: trackers[name].close() if hasattr(trackers[name], "close") else None)


def earlier_rows(run_dir: Path, step: int | None) -> list[Row]:
    """The rows of a run up to ``step``: numbers, histograms and clips. A new run (None) has no rows."""
    if step is None:
        return []

    def rows(file: str, read: Callable[[Any], Any]) -> list[Row]:
        found = read_rows(run_dir / file)
        return [(row["step"], {name: read(x) for name, x in row.items() if name != "step"}) for row in found]

    clips = [path for path in (run_dir / "videos").glob("*.mp4") if path.stem.isdecimal()]
    found = rows(METRICS, lambda x: float("nan") if x is None else x) + rows(HISTOGRAMS, Histogram.from_json)
    found += [(int(path.stem), {CLIP: Clip(path)}) for path in clips]
    return sorted((row for row in found if row[0] <= step), key=lambda row: row[0])
