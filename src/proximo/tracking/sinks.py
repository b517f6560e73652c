"""Sinks: where the metrics of a run are written. JSON lines and TensorBoard; ``trackers`` has the others."""

from __future__ import annotations

import json
import math
import re
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsFloat

from proximo.errors import CheckpointError
from proximo.serialization import read_json
from proximo.storage.atomic_files import AppendedFile, plain, write_atomic
from proximo.storage.run_directory import HISTOGRAMS
from proximo.tracking.histograms import Histogram


@dataclass(frozen=True)
class TrackedRun:
    """The run of a sink. A custom sink is created as ``MySink(run)``."""

    run_dir: Path
    """The run directory."""
    settings: dict[str, dict[str, Any]]
    """The settings as ``{group: {name: value}}``, as in ``config.yaml``."""
    resumed_at: int | None = None
    """The environment step that a resumed run continues from; None for a new run."""
    warned: Callable[[str], None] = lambda message: None
    """Warns the user with a sentence."""


class Sink:
    """Receives the metrics of a run. A custom sink must define ``write``; everything else is optional. ``step`` counts environment steps."""

    knows_its_rows = False
    """Whether the sink itself skips rows that it already has. It then receives all rows again when the run is resumed."""

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Record a row.

        Args:
            step: environment steps so far.
            values: numbers by the names of ``metrics.jsonl``, such as ``train/loss``; NaN if there was nothing to measure.
        """
        raise NotImplementedError(f"{type(self).__name__} has no write(step, values).")

    def write_histograms(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        """Record histograms by name. Runs with ``histograms`` call it."""

    def write_clip(self, step: int, gif: Callable[[], bytes], size: tuple[int, int]) -> None:
        """Show a recorded episode. Runs with ``video_every`` call it.

        Args:
            step: environment steps so far.
            gif: returns an animated GIF.
            size: (height, width) of the GIF in pixels.
        """

    def flush(self) -> None:
        """Make everything written so far survive the end of this process. Called before each checkpoint."""

    def end(self, hurry: bool = False) -> None:
        """Begin to finish, without waiting; in a ``hurry`` with less time. Called once or more before ``close``."""

    def close(self) -> None:
        """Finish. No other method is called afterwards."""


def _row(line: bytes) -> dict[str, Any] | None:
    """The row in ``line``, or None if there is none."""
    try:
        row = read_json(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and type(row.get("step")) is int and abs(row["step"]) < 2**63 else None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file.

    Args:
        path: the file; a missing file has no rows.

    Returns:
        ``[{"step": …, name: value or None}]``. An incomplete last line, which a crash may leave, is omitted.

    Raises:
        CheckpointError: a line before the last one is damaged.
    """
    if not path.is_file():
        return []
    lines = path.read_bytes().splitlines()
    rows = [_row(line) for line in lines]
    if rows and rows[-1] is None:
        rows.pop()
    if None in rows:
        raise CheckpointError(
            f"{path} is damaged: line {rows.index(None) + 1} is not a row of metrics. Remove that line to continue."
        )
    return [row for row in rows if row is not None]


def truncate_after(path: Path, step: float) -> None:
    """Remove the rows after ``step`` and an incomplete last line, so that a resumed run writes each row once. Atomic."""
    if not path.exists():
        return
    kept = "".join(json.dumps(row) + "\n" for row in read_rows(path) if row["step"] <= step).encode()
    if kept != path.read_bytes():
        write_atomic(path, kept)


class JsonLines(Sink):
    """Appends each row to ``path`` as one JSON object, and histograms to ``histograms.jsonl`` beside it. NaN and infinity become null."""

    def __init__(self, path: Path, warned: Callable[[str], None] = lambda message: None):
        paths = path, path.with_name(HISTOGRAMS)
        self._rows, self._histograms = self._files = [AppendedFile(path, warned) for path in paths]
        for path in paths:
            truncate_after(path, math.inf)  # the first new row would be lost in an incomplete last line

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Append the row."""
        self._append(self._rows, {"step": int(step), **values})

    def write_histograms(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        """Append a row of histograms: counts in equal bins from ``low`` to ``high``."""
        self._append(self._histograms, {"step": int(step), **{name: h.as_json() for name, h in histograms.items()}})

    def flush(self) -> None:
        """Return when the disk has all rows, so that a power failure cannot lose rows from before a checkpoint."""
        for file in self._files:
            file.sync()

    def close(self) -> None:
        """Write the rows that are still in memory."""
        for file in self._files:
            file.close()

    @staticmethod
    def _append(file: AppendedFile, row: Mapping[str, Any]) -> None:
        file.append((json.dumps(plain(row), allow_nan=False) + "\n").encode())


class TensorBoard(Sink):
    """Writes TensorBoard events to ``run_dir``. On a resume, events from ``purge_step`` on are hidden.

    Only the encoding is that of tensorboardX. Its writer is not used: its thread ends when the disk is full, and every later write then
    blocks forever.
    """

    def __init__(self, run_dir: Path, purge_step: int | None = None, warned: Callable[[str], None] = lambda message: None):
        from tensorboardX.proto.event_pb2 import SessionLog  # pyright: ignore[reportAttributeAccessIssue]

        self._file = AppendedFile(_new_events_file(run_dir), warned)
        self._add(step=purge_step or 0, file_version="brain.Event:2")
        if purge_step is not None:
            self._add(step=purge_step, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Add a scalar for each finite value; TensorBoard cannot draw the others."""
        self._add_values(step, [{"tag": name, "simple_value": float(x)} for name, x in values.items() if math.isfinite(x)])

    def write_histograms(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        """Add each histogram with its own bins."""

        def histo(h: Histogram) -> dict[str, Any]:
            ends = {"min": h.low, "max": h.high, "bucket_limit": h.edges[1:].tolist(), "bucket": h.counts.tolist()}
            return {**ends, "num": h.count, "sum": h.total, "sum_squares": h.squares}

        self._add_values(step, [{"tag": name, "histo": histo(h)} for name, h in histograms.items()])

    def write_clip(self, step: int, gif: Callable[[], bytes], size: tuple[int, int]) -> None:
        """Add the GIF as an image, as tensorboardX's ``add_video`` does, which needs moviepy."""
        image = {"height": size[0], "width": size[1], "colorspace": 3, "encoded_image_string": gif()}
        self._add_values(step, [{"tag": "videos/episode", "image": image}])

    def flush(self) -> None:
        """Return when the disk has all events."""
        self._file.sync()

    def close(self) -> None:
        """Write the events that are still in memory."""
        self._file.close()

    def _add_values(self, step: int, values: list[dict[str, Any]]) -> None:
        from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        self._add(step=int(step), summary=Summary(value=[Summary.Value(**value) for value in values]))

    def _add(self, **fields: Any) -> None:
        """Append an event as a TFRecord: its length and its bytes, each with a checksum."""
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.record_writer import masked_crc32c

        event = Event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(event))
        checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, event)]
        self._file.append(length + checksums[0] + event + checksums[1])


def _new_events_file(run_dir: Path) -> Path:
    """A path that sorts after all other event files, even if the clock was set back. TensorBoard reads the files by name."""
    stamps = [re.match(r"events\.out\.tfevents\.(\d{10})\.", path.name) for path in run_dir.glob("events.*")]
    latest = max((int(stamp[1]) for stamp in stamps if stamp), default=0)
    return run_dir / f"events.out.tfevents.{max(int(time.time()), latest + 1):010d}.{socket.gethostname()}"
