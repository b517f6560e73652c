"""Reading and shortening ``metrics.jsonl`` and ``histograms.jsonl``, which ``RunTrackers`` writes."""

from pathlib import Path
from typing import Any

from proximo.errors import CheckpointError
from proximo.serialization import json_lines, read_json
from proximo.storage.atomic_files import write_atomic


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
