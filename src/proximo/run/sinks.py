"""Where the numbers of a run go: JSON lines always, TensorBoard beside them, and whatever ``track`` names."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsFloat

from proximo.errors import CheckpointError
from proximo.run.files import plain, write_atomic
from proximo.run.histograms import Histogram
from proximo.serialization import read_json

FLUSH_SECONDS = 5.0
METRICS, HISTOGRAMS = "metrics.jsonl", "histograms.jsonl"


@dataclass(frozen=True)
class TrackedRun:
    """The run that a sink of one's own is opened for, as ``MySink(run)``."""

    run_dir: Path
    settings: dict[str, dict[str, Any]]
    """Groups of settings by name, as in ``config.yaml``."""
    resumed_at: int | None = None
    """The step that a resumed run goes on from; None for a new one."""
    warned: Callable[[str], None] = lambda message: None
    """Shows the user a sentence."""


class Sink:
    """Takes a run's numbers. Only ``write`` has to be written for another tracker; ``step`` counts environment steps."""

    knows_its_rows = False
    """Whether it leaves out by itself what it has already; it is then given all rows again when the run is resumed."""

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Record ``values``, whose names are grouped as in ``train/loss``; NaN where something could not be measured."""
        raise NotImplementedError(f"{type(self).__name__} has no write(step, values).")

    def write_histograms(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        """Record histograms, where the run makes them and the sink can show them."""

    def write_clip(self, step: int, gif: Callable[[], bytes], size: tuple[int, int]) -> None:
        """Show an episode, where the run records some and the sink can: ``gif()`` is an animated gif of (height, width) pixels."""

    def flush(self) -> None:
        """A checkpoint is about to be saved: what was written must survive the end of this process."""

    def close(self) -> None:
        """Write out what is buffered; nothing is written afterwards."""


def _row(line: bytes) -> dict[str, Any] | None:
    """The row in a line, or None when it is none."""
    try:
        row = read_json(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and type(row.get("step")) is int and abs(row["step"]) < 2**63 else None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file, ``[{"step": …, name: value or None}]``; a last line torn by a crash is left out.

    A missing file has no rows. Raises ``CheckpointError`` when a line before the last is damaged.
    """
    if not path.is_file():
        return []
    lines = path.read_bytes().splitlines()
    rows = [_row(line) for line in lines]
    if rows and rows[-1] is None:
        rows.pop()
    if None in rows:
        raise CheckpointError(f"{path} is damaged: line {rows.index(None) + 1} is no row of metrics. Remove that line to go on.")
    return [row for row in rows if row is not None]


def truncate_after(path: Path, step: float) -> None:
    """Drop the rows beyond ``step`` and a torn last line, so that a resumed run writes each row once; atomic."""
    if not path.exists():
        return
    kept = "".join(json.dumps(row) + "\n" for row in read_rows(path) if row["step"] <= step).encode()
    if kept != path.read_bytes():
        write_atomic(path, kept)


class JsonLines(Sink):
    """One JSON object a row, appended to ``path``; NaN and infinity become null. Histograms go to ``histograms``."""

    def __init__(self, path: Path, histograms: Path | None = None):
        self._path, self._histograms = path, histograms
        # A torn last line would swallow the first new row.
        for file in (path, histograms):
            if file is not None:
                truncate_after(file, math.inf)

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Append the row."""
        self._append(self._path, {"step": int(step), **values})

    def write_histograms(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        """Append a row of histograms: counts between equal steps from ``low`` to ``high``."""
        if self._histograms is not None:
            self._append(self._histograms, {"step": int(step), **{name: h.as_json() for name, h in histograms.items()}})

    @staticmethod
    def _append(path: Path, row: Mapping[str, Any]) -> None:
        line = json.dumps(plain(row), allow_nan=False) + "\n"
        # Opened for each row: a file held open would be the old one after truncate_after has put another in its place.
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)


class TensorBoard(Sink):
    """TensorBoard events in ``run_dir``. ``purge_step``: on resume, what stands at this step and beyond is hidden."""

    def __init__(self, run_dir: Path, purge_step: int | None = None):
        from tensorboardX import SummaryWriter  # only here: it takes long to import, and not every run wants it

        self._writer = SummaryWriter(str(run_dir), purge_step=purge_step)

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Add a scalar for each finite value; TensorBoard cannot draw the others."""
        for name, value in values.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, float(value), int(step))

    def write_histograms(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        """Add each of them as it was counted."""
        for name, h in histograms.items():
            self._writer.add_histogram_raw(
                name, h.low, h.high, h.count, h.total, h.squares, h.edges[1:].tolist(), h.counts.tolist(), int(step)
            )

    def flush(self) -> None:
        """Events wait in memory for up to two minutes otherwise: in a file's buffer, and before it in the queue of a thread, which
        tensorboardX's own flush forgets."""
        deadline = time.monotonic() + FLUSH_SECONDS
        for writer in (self._writer.all_writers or {}).values():
            waiting = getattr(getattr(writer, "event_writer", None), "_event_queue", None)
            while waiting is not None and not waiting.empty() and time.monotonic() < deadline:
                time.sleep(0.001)
        time.sleep(0.01)  # for the one that has left the queue
        self._writer.flush()

    def write_clip(self, step: int, gif: Callable[[], bytes], size: tuple[int, int]) -> None:
        """Show an animated gif of (height, width) pixels among the images: what ``add_video`` writes, which wants moviepy to make it."""
        from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        image = Summary.Image(height=size[0], width=size[1], colorspace=3, encoded_image_string=gif())
        self._writer._get_file_writer().add_summary(Summary(value=[Summary.Value(tag="videos/episode", image=image)]), step)

    def close(self) -> None:
        """Write out and close the events."""
        self._writer.close()
