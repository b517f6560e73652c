"""The trackers of a run: ``metrics.jsonl``, and one queue for TensorBoard and the trackers that ``track`` names."""

import contextlib
import importlib.util
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from proximo.config.validation import TRACKERS, tracker_names
from proximo.custom_code import imported
from proximo.errors import ConfigError, lacking
from proximo.serialization import json_lines
from proximo.storage.atomic_files import AppendedFile
from proximo.storage.run_directory import HISTOGRAMS, METRICS
from proximo.tracking.histograms import Histogram
from proximo.tracking.json_lines import read_rows, truncate_after
from proximo.tracking.tracker import CLIP, Clip, TrackedRun, Tracker, numbers

MODULES = {
    "csv": "proximo.tracking.csv_table:CsvTable",
    "wandb": "proximo.tracking.weights_and_biases:WeightsAndBiases",
    "TensorBoard": "proximo.tracking.tensorboard:TensorBoard",
}
"""Imported in the thread of the trackers, because their libraries take long to import."""
PATIENCE_SECONDS, HURRY_SECONDS = 60.0, 3.0
"""How long the end of a training waits for the trackers: normally, and after a second interruption."""
FLUSH_SECONDS = 1.0
"""How long a checkpoint waits for the trackers to write queued rows. Until they have, later ones do not wait."""


def check_trackers(track: str) -> None:
    """Before anything is compiled, raise ``ConfigError`` if a tracker that ``track`` names does not exist, and ``EnvError``
    if its library is not installed."""
    for name in tracker_names(track):
        if name == "wandb":
            spec = importlib.util.find_spec("wandb")
            if spec is None or spec.origin is None:  # a folder of that name, which it creates, is not the library
                raise lacking("track = wandb", "wandb")
        elif name not in TRACKERS:
            tracker_class(name)


def tracker_class(name: str) -> Callable[[TrackedRun], Tracker]:
    """The class of a tracker. Raises ``ConfigError`` if ``module:Class`` is not a tracker."""
    found = imported(MODULES.get(name, name), f"track = {name!r}")
    if not callable(found) or not callable(getattr(found, "write", None)):
        raise ConfigError(
            f"track = {name!r}: expected a class with write(step, values) (docs/tracking.md has an example), found {found!r}."
        )
    return cast("Callable[[TrackedRun], Tracker]", found)


class RunTrackers(Tracker):
    """Appends each row to ``metrics.jsonl`` as one JSON object, and histograms to ``histograms.jsonl``. A thread passes all
    rows to the other trackers, so that they can neither slow nor stop the training. After a resume, it
    begins with the earlier rows. A tracker that raises is dropped with a warning.

    ``track`` is the setting. Raises ``OSError`` if ``metrics.jsonl`` cannot be written.
    """

    def __init__(self, run: TrackedRun, track: str, tensorboard: bool):
        self._run, self.patience, self._ended_at = run, PATIENCE_SECONDS, 0.0
        self._files = [AppendedFile(run.run_dir / name, run.warned) for name in (METRICS, HISTOGRAMS)]
        for file in self._files:
            truncate_after(file.path, math.inf)  # the first new row would be lost in an incomplete last line
        self._names = [*(["TensorBoard"] if tensorboard else []), *tracker_names(track)]
        self._busy = ""
        """The tracker that works now."""
        self._queue: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        """Calls of all trackers: the method and its arguments."""
        self._flushed = threading.Event()
        self._flushed.set()
        self._thread = threading.Thread(target=self._work, daemon=True, name="trackers")
        for row in earlier_rows(run.run_dir, run.resumed_at):
            self._queue.put(("write", *row))
        self._thread.start()

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        rows = numbers(values), {name: x.as_json() for name, x in values.items() if isinstance(x, Histogram)}
        for file, row in zip(self._files, rows, strict=True):
            if row:  # NaN and infinity become null
                file.append(json_lines([{"step": int(step), **row}]))
        self._queue.put(("write", step, values))

    def flush(self) -> None:
        for file in self._files:
            file.sync()
        if self._flushed.is_set():
            self._flushed.clear()
            self._queue.put(("flush",))
            self._flushed.wait(FLUSH_SECONDS)

    def end(self, hurry: bool = False) -> None:
        """Begin to finish. The ``patience`` starts with the first call, so that all seeds finish at the same time."""
        if hurry:
            self.patience = HURRY_SECONDS
        if not self._ended_at:
            self._ended_at = time.monotonic()
            self._queue.put(("close",))

    def close(self) -> None:
        """Wait until everything is written, at most until the ``patience`` ends."""
        self.end()
        for file in self._files:
            file.sync()
        self._thread.join(max(0.0, self._ended_at + self.patience - time.monotonic()))
        if self._thread.is_alive():
            waited = f"{self._busy} has not written everything within {self.patience:.0f} s"
            self._run.warned(f"{waited}: the last rows may be missing in {', '.join(self._names)}.")

    def _work(self) -> None:
        trackers: dict[str, Any] = {}

        @contextlib.contextmanager
        def working(name: str) -> Iterator[None]:
            self._busy = name
            try:
                yield
            except (Exception, SystemExit) as error:
                trackers.pop(name, None)
                reason = " ".join(str(error).split()) or "no reason given"
                failed = f"{name} has failed ({type(error).__name__}: {reason})"
                self._run.warned(f"{failed}: it receives no more rows, and the training continues.")

        for name in self._names:
            with working(name):
                trackers[name] = tracker_class(name)(self._run)
        method = ""
        while method != "close":
            method, *arguments = self._queue.get()
            for name, tracker in list(trackers.items()):
                with working(name):
                    getattr(tracker, method, lambda *ignored: None)(*arguments)
            if method == "flush":
                self._flushed.set()


def earlier_rows(run_dir: Path, step: int | None) -> list[tuple[int, Mapping[str, Any]]]:
    """The rows of a run up to ``step``: numbers, histograms and clips. A new run (None) has no rows."""
    if step is None:
        return []
    clips = [path for path in (run_dir / "videos").glob("*.mp4") if path.stem.isdecimal()]
    rows: list[tuple[int, Mapping[str, Any]]] = []
    for file, read in ((METRICS, lambda x: float("nan") if x is None else x), (HISTOGRAMS, Histogram.from_json)):
        rows += [(row.pop("step"), {name: read(x) for name, x in row.items()}) for row in read_rows(run_dir / file)]
    rows += [(int(path.stem), {CLIP: Clip(path)}) for path in clips]
    return sorted((row for row in rows if row[0] <= step), key=lambda row: row[0])
