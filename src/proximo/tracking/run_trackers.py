"""The trackers of a run: ``metrics.jsonl``, and one queue for TensorBoard and the trackers that ``track`` names."""

import math
import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from proximo.config.validation import TRACKERS, tracker_names
from proximo.custom_code import imported
from proximo.errors import CheckpointError, ConfigError, require
from proximo.serialization import json_lines, read_json
from proximo.storage.atomic_files import AppendedFile, write_atomic
from proximo.storage.run_directory import HISTOGRAMS, METRICS
from proximo.tracking.histograms import Histogram
from proximo.tracking.tracker import CLIP, Clip, TrackedRun, Tracker, numbers

MODULES = {
    "csv": "proximo.tracking.csv_table:CsvTable",
    "wandb": "proximo.tracking.weights_and_biases:WeightsAndBiases",
    "TensorBoard": "proximo.tracking.tensorboard:TensorBoard",
}
"""Imported in the thread of the trackers, because their libraries take long to import."""
FLUSH_SECONDS = 1.0
"""How long a checkpoint waits for the trackers to write queued rows. Until they have, later ones do not wait."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file, ``[{"step": …, name: value or None}]``, without an incomplete last line, which a crash
    may leave. A missing file has no rows. Raises ``CheckpointError`` if a line before the last one is damaged."""
    rows: list[dict[str, Any]] = []
    lines = path.read_bytes().splitlines() if path.is_file() else []
    for i, line in enumerate(lines, 1):
        try:
            row = read_json(line)
        except ValueError:
            row = None
        if isinstance(row, dict) and type(row.get("step")) is int and abs(row["step"]) < 2**63:
            rows.append(row)
        elif i < len(lines):
            raise CheckpointError(f"{path} is damaged: line {i} is not a row of metrics. Remove that line to continue.")
    return rows


def truncate_after(path: Path, step: float) -> None:
    """Remove the rows after ``step`` and an incomplete last line, for a resume. A crash leaves the file as it was."""
    if path.exists():
        kept = json_lines(row for row in read_rows(path) if row["step"] <= step)
        if kept != path.read_bytes():
            write_atomic(path, kept)


def check_trackers(track: str) -> None:
    """Before anything is compiled, raise ``ConfigError`` if a tracker that ``track`` names does not exist, and ``EnvError``
    if its library is not installed."""
    for name in tracker_names(track):
        if name == "wandb":
            require("wandb", "track = wandb", "wandb")
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
        self._run = run
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
        self._queue.put(("",))  # makes the trackers
        for row in () if run.resumed_at is None else earlier_rows(run.run_dir, run.resumed_at):
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

    def close(self) -> None:
        self._queue.put(("close",))
        for file in self._files:
            file.sync()
        self._thread.join(self.patience)
        if self._thread.is_alive():
            waited = f"{self._busy} has not written everything within {self.patience:.0f} s"
            self._run.warned(f"{waited}: the last rows may be missing in {', '.join(self._names)}.")

    def _work(self) -> None:
        trackers: dict[str, Any] = dict.fromkeys(self._names)
        method = ""
        while method != "close":
            method, *arguments = self._queue.get()
            for name in list(trackers):
                self._busy = name
                try:
                    if trackers[name] is None:
                        trackers[name] = tracker_class(name)(self._run)
                    getattr(trackers[name], method, lambda *ignored: None)(*arguments)
                except (Exception, SystemExit) as error:
                    del trackers[name]
                    reason = " ".join(str(error).split()) or "no reason given"
                    failed = f"{name} has failed ({type(error).__name__}: {reason})"
                    self._run.warned(f"{failed}: it receives no more rows, and the training continues.")
            if method == "flush":
                self._flushed.set()


def earlier_rows(run_dir: Path, step: int) -> list[tuple[int, dict[str, Any]]]:
    """The rows of a run up to ``step``: numbers, histograms and clips."""
    clips = (run_dir / "videos").glob("*.mp4")
    rows: list[tuple[int, dict[str, Any]]] = []
    for file, read in ((METRICS, lambda x: float("nan") if x is None else x), (HISTOGRAMS, Histogram.from_json)):
        rows += [(row.pop("step"), {name: read(x) for name, x in row.items()}) for row in read_rows(run_dir / file)]
    rows += [(int(path.stem), {CLIP: Clip(path)}) for path in clips if path.stem.isdecimal()]
    return sorted((row for row in rows if row[0] <= step), key=lambda row: row[0])
