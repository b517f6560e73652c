"""The trackers of a run: JSON lines, TensorBoard, and those that ``track`` names."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping
from typing import SupportsFloat, cast

import numpy as np

from proximo.config.validation import TRACKERS, tracker_names
from proximo.custom_code import imported
from proximo.errors import ConfigError, lacking, nearest
from proximo.storage.run_directory import METRICS
from proximo.tracking.background_tracker import BackgroundTracker, earlier_rows, failure
from proximo.tracking.csv_table import CsvTable
from proximo.tracking.histograms import Histogram
from proximo.tracking.json_lines import JsonLines
from proximo.tracking.tensorboard import TensorBoard
from proximo.tracking.tracker import TrackedRun, Tracker


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

    ``track`` has their names, as in the setting. Raises ``OSError`` if ``metrics.jsonl`` or the events cannot be written, for example
    because the disk is full.
    """

    def __init__(self, run: TrackedRun, track: str, tensorboard: bool):
        self._warned = run.warned
        self._removing = threading.Lock()  # the threads that write checkpoints and clips call trackers too
        # metrics.jsonl comes first, because the others read missed rows from it.
        self._trackers: list[Tracker] = [JsonLines(run.run_dir / METRICS, run.warned)]
        if tensorboard:
            self._trackers.append(_tensorboard(run))
        self._trackers += [_open(name, run) for name in tracker_names(track)]

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        self._each(lambda tracker: tracker.write(step, values))

    def write_histograms(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        self._each(lambda tracker: tracker.write_histograms(step, histograms))

    def write_clip(self, step: int, gif: Callable[[], bytes], size: tuple[int, int]) -> None:
        self._each(lambda tracker: tracker.write_clip(step, gif, size))

    def write_image(self, step: int, name: str, image: np.ndarray) -> None:
        self._each(lambda tracker: tracker.write_image(step, name, image))

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


def _tensorboard(run: TrackedRun) -> TensorBoard:
    """TensorBoard, with the earlier rows if it is new to a resumed run."""
    if run.resumed_at is None:
        return TensorBoard(run.run_dir, None, run.warned, run.settings)
    if any(run.run_dir.glob("events.*")):
        return TensorBoard(run.run_dir, run.resumed_at + 1, run.warned, run.settings)
    added = TensorBoard(run.run_dir, None, run.warned, run.settings)
    for method, arguments in earlier_rows(run.run_dir, run.resumed_at):
        getattr(added, method)(*arguments)
    return added


def _open(name: str, run: TrackedRun) -> Tracker:
    if name == "csv":
        return CsvTable(run)
    if name == "wandb":
        from proximo.tracking.weights_and_biases import WeightsAndBiases  # it imports the library in its own thread

        return BackgroundTracker(name, WeightsAndBiases, run)
    return BackgroundTracker(name, _custom(name), run)
