"""Where the numbers of a run go: JSON lines always, TensorBoard beside them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, SupportsFloat

from proximo.errors import CheckpointError
from proximo.run.files import plain, write_atomic


class Sink(Protocol):
    """Takes rows of metrics. ``step`` counts environment steps, and names are grouped as in ``train/loss``."""

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Record ``values`` at ``step``."""
        ...

    def close(self) -> None:
        """Write out what is buffered; nothing may be written afterwards."""
        ...


def _row(line: bytes) -> dict[str, Any] | None:
    """The row in a line, or None when it is none."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file, ``[{"step": …, name: value or None}]``; a last line torn by a crash is left out.

    A missing file has no rows. Raises ``CheckpointError`` when a line before the last is damaged.
    """
    if not path.exists():
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


class JsonLines:
    """One JSON object a row, appended to ``path``; NaN and infinity become null."""

    def __init__(self, path: Path):
        self._path = path
        # A torn last line would swallow the first new row.
        truncate_after(path, math.inf)

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Append the row."""
        line = json.dumps(plain({"step": int(step), **values}), allow_nan=False) + "\n"
        # Opened for each row: a file held open would be the old one after truncate_after has put another in its place.
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(line)

    def close(self) -> None:
        """Nothing is held open."""


class TensorBoard:
    """TensorBoard events in ``run_dir``. ``purge_step``: on resume, what stands at this step and beyond is hidden."""

    def __init__(self, run_dir: Path, purge_step: int | None = None):
        from tensorboardX import SummaryWriter  # only here: it takes long to import, and not every run wants it

        self._writer = SummaryWriter(str(run_dir), purge_step=purge_step)

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Add a scalar for each finite value; TensorBoard cannot draw the others."""
        for name, value in values.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, float(value), int(step))

    def close(self) -> None:
        """Write out and close the events."""
        self._writer.close()
