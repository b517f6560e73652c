"""The trackers of a run: JSON lines, TensorBoard, and those that ``track`` names."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from proximo.config.validation import TRACKERS, tracker_names
from proximo.custom_code import imported
from proximo.errors import ConfigError, lacking, nearest
from proximo.storage.run_directory import HISTOGRAMS, METRICS
from proximo.tracking.background_tracker import BackgroundTracker, Row, failure
from proximo.tracking.csv_table import CsvTable
from proximo.tracking.histograms import Histogram
from proximo.tracking.json_lines import JsonLines, read_rows
from proximo.tracking.tensorboard import TensorBoard
from proximo.tracking.tracker import CLIP, Clip, TrackedRun, Tracker


def check_trackers(track: str) -> None:
    """Check that every tracker that ``track`` names exists, before anything is compiled. Raises ``ConfigError`` if it does not, and
    ``EnvError`` if its library is not installed."""
    for name in tracker_names(track):
        if name == "wandb":
            spec = importlib.util.find_spec("wandb")
            if spec is None or spec.origin is None:  # a folder of that name, which Weights & Biases creates, is not the library
                raise lacking("track = wandb", "wandb")
        elif name not in TRACKERS:
            _custom(name)


def _custom(name: str) -> Callable[[TrackedRun], Tracker]:
    """The custom class that ``module:Class`` names. Raises ``ConfigError`` if it is not a tracker."""
    module_name, _, class_name = name.rpartition(":")
    module = imported(module_name, f"track = {name!r}")
    found = getattr(module, class_name, None)
    if not callable(found) or not callable(getattr(found, "write", None)):
        what = f"nothing of that name{nearest(class_name, vars(module))}" if found is None else repr(found)
        raise ConfigError(
            f"track = {name!r}: expected a class with write(step, values) (docs/tracking.md has an example), found {what}."
        )
    return cast("Callable[[TrackedRun], Tracker]", found)


class RunTrackers(Tracker):
    """All trackers of a run directory. A tracker that raises is dropped with a warning, because no tracker may stop a training.

    After a resume, the others receive the earlier rows again from ``metrics.jsonl``, except a TensorBoard whose earlier files have them.
    ``track`` has the names of trackers, as in the setting.
    Raises ``OSError`` if ``metrics.jsonl`` or the events cannot be written, for example because the disk is full.
    """

    def __init__(self, run: TrackedRun, track: str, tensorboard: bool):
        self._warned = run.warned
        self._removing = threading.Lock()  # the threads that write checkpoints and clips call trackers too
        earlier = [] if run.resumed_at is None else earlier_rows(run.run_dir, run.resumed_at)
        boards = [TensorBoard(run)] if tensorboard else []
        names = tracker_names(track)
        tables = [CsvTable(run) for name in names if name == "csv"]
        self._trackers: list[Tracker] = [*(board for board in boards if not board.continues), *tables]
        for row in earlier:
            self.write(*row)
        others = [BackgroundTracker(name, _make(name), run, earlier) for name in names if name != "csv"]
        self._trackers = [JsonLines(run.run_dir / METRICS, run.warned), *boards, *tables, *others]

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        self._each(lambda tracker: tracker.write(step, values))

    def flush(self) -> None:
        self._each(lambda tracker: tracker.flush())

    def end(self, hurry: bool = False) -> None:
        self._each(lambda tracker: tracker.end(hurry))

    def close(self) -> None:
        self._each(lambda tracker: tracker.close())

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for tracker in tuple(self._trackers):
            try:
                call(tracker)
            except Exception as error:
                with self._removing:
                    is_first = tracker in self._trackers
                    if is_first:
                        self._trackers.remove(tracker)
                if is_first:
                    self._warned(failure(type(tracker).__name__, error))


def earlier_rows(run_dir: Path, step: int) -> list[Row]:
    """The rows of a run up to ``step``: numbers, histograms and clips."""
    rows: list[Row] = []
    for row in read_rows(run_dir / METRICS):
        values = {name: float("nan") if value is None else value for name, value in row.items() if name != "step"}
        rows.append((row["step"], values))
    for row in read_rows(run_dir / HISTOGRAMS):
        rows.append((row["step"], {name: Histogram.from_json(value) for name, value in row.items() if name != "step"}))
    clips = [path for path in (run_dir / "videos").glob("*.mp4") if path.stem.isdecimal()]
    rows += [(int(path.stem), {CLIP: Clip(path)}) for path in clips]
    return sorted((row for row in rows if row[0] <= step), key=lambda row: row[0])


def _make(name: str) -> Callable[[TrackedRun], Any]:
    if name != "wandb":
        return _custom(name)
    from proximo.tracking.weights_and_biases import WeightsAndBiases  # it imports the library in its own thread

    return WeightsAndBiases
