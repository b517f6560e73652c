"""The trackers of a run: ``metrics.jsonl``, and in their own threads TensorBoard and those that ``track`` names."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from proximo.config.validation import TRACKERS, tracker_names
from proximo.custom_code import imported
from proximo.errors import ConfigError, lacking, nearest
from proximo.storage.run_directory import HISTOGRAMS, METRICS
from proximo.tracking.background_tracker import BackgroundTracker, Row
from proximo.tracking.histograms import Histogram
from proximo.tracking.json_lines import JsonLines, read_rows
from proximo.tracking.tracker import CLIP, Clip, TrackedRun, Tracker

MODULES = {
    "csv": "proximo.tracking.csv_table:CsvTable",
    "wandb": "proximo.tracking.weights_and_biases:WeightsAndBiases",
    "TensorBoard": "proximo.tracking.tensorboard:TensorBoard",
}
"""Imported in the threads of these trackers, because their libraries take long to import."""


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
    """Writes ``metrics.jsonl``, and passes all rows to the other trackers. After a resume, these first receive the earlier rows again.

    ``track`` has the names of trackers, as in the setting. Raises ``OSError`` if ``metrics.jsonl`` cannot be written, for example because
    the disk is full.
    """

    def __init__(self, run: TrackedRun, track: str, tensorboard: bool):
        names = [*(["TensorBoard"] if tensorboard else []), *tracker_names(track)]
        earlier = [] if run.resumed_at is None else earlier_rows(run.run_dir, run.resumed_at)
        self._lines = JsonLines(run.run_dir / METRICS, run.warned)
        self._others = [BackgroundTracker(name, lambda run, name=name: tracker_class(name)(run), run, earlier) for name in names]

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        for tracker in (self._lines, *self._others):
            tracker.write(step, values)

    def flush(self) -> None:
        self._lines.flush()

    def end(self, hurry: bool = False) -> None:
        for tracker in self._others:
            tracker.end(hurry)

    def close(self) -> None:
        for tracker in (self._lines, *self._others):
            tracker.close()


def earlier_rows(run_dir: Path, step: int) -> list[Row]:
    """The rows of a run up to ``step``: numbers, histograms and clips."""

    def rows(file: str, read: Callable[[Any], Any]) -> list[Row]:
        found = read_rows(run_dir / file)
        return [(row["step"], {name: read(x) for name, x in row.items() if name != "step"}) for row in found]

    clips = [path for path in (run_dir / "videos").glob("*.mp4") if path.stem.isdecimal()]
    found = rows(METRICS, lambda x: float("nan") if x is None else x) + rows(HISTOGRAMS, Histogram.from_json)
    found += [(int(path.stem), {CLIP: Clip(path)}) for path in clips]
    return sorted((row for row in found if row[0] <= step), key=lambda row: row[0])
