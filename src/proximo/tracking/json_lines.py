"""``metrics.jsonl`` and ``histograms.jsonl``: writing, reading and shortening these files. Other trackers derive from them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proximo.errors import CheckpointError
from proximo.serialization import jsonable, read_json
from proximo.storage.atomic_files import AppendedFile, write_atomic
from proximo.storage.run_directory import HISTOGRAMS
from proximo.tracking.histograms import Histogram
from proximo.tracking.tracker import Tracker, numbers


def _row(line: bytes) -> dict[str, Any] | None:
    """The row in ``line``, or None if there is none."""
    try:
        row = read_json(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and type(row.get("step")) is int and abs(row["step"]) < 2**63 else None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file, ``[{"step": …, name: value or None}]``. A missing file has none, and an incomplete last line,
    which a crash may leave, is omitted. Raises ``CheckpointError`` if a line before the last one is damaged."""
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


class JsonLines(Tracker):
    """Appends each row to ``path`` as one JSON object, and histograms to ``histograms.jsonl`` beside it. NaN and infinity become null."""

    def __init__(self, path: Path, warned: Callable[[str], None] = lambda message: None):
        paths = path, path.with_name(HISTOGRAMS)
        self._files = [AppendedFile(path, warned) for path in paths]
        for path in paths:
            truncate_after(path, math.inf)  # the first new row would be lost in an incomplete last line

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Append the numbers to one file, and histograms (counts in equal bins from ``low`` to ``high``) to the other."""
        rows = numbers(values), {name: x.as_json() for name, x in values.items() if isinstance(x, Histogram)}
        for file, row in zip(self._files, rows, strict=True):
            if row:
                file.append((json.dumps(jsonable({"step": int(step), **row}), allow_nan=False) + "\n").encode())

    def flush(self) -> None:
        """Return when the disk has all rows, so that a power failure cannot lose rows from before a checkpoint."""
        for file in self._files:
            file.sync()

    close = flush
