"""``metrics.csv``: the rows of ``metrics.jsonl`` as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any, SupportsFloat

from proximo.serialization import csv_cell, jsonable
from proximo.storage.atomic_files import Attempts, write_atomic
from proximo.storage.run_directory import METRICS
from proximo.tracking.json_lines import read_rows
from proximo.tracking.tracker import TrackedRun, Tracker


class CsvTable(Tracker):
    """A table with a column for each metric, in order of appearance. A cell is empty if its row has no such number.

    The table is rewritten from ``metrics.jsonl`` for a new column, on a resume, and after a write that failed.
    """

    def __init__(self, run: TrackedRun):
        self._path, self._source = run.run_dir / "metrics.csv", run.run_dir / METRICS
        self._attempt = Attempts(self._path, run.warned, "proximo tries again with the next row.")
        self._columns: dict[str, None] = {"step": None}
        kept = [] if run.resumed_at is None else [row for row in read_rows(self._source) if row["step"] <= run.resumed_at]
        self._complete = self._attempt(lambda: self._rewrite(kept))

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Append the row, or rewrite the table if the row has a new column."""
        if self._complete and values.keys() <= self._columns.keys():
            row = {"step": int(step), **{name: float(value) for name, value in values.items()}}
            self._complete = self._attempt(lambda: self._append(row))
        else:
            self._complete = self._attempt(lambda: self._rewrite(read_rows(self._source)))

    def close(self) -> None:
        """Rewrite the table if the last write failed, for example because another program had the file open."""
        if not self._complete:
            self._attempt(lambda: self._rewrite(read_rows(self._source)))

    def _append(self, row: Mapping[str, Any]) -> None:
        with open(self._path, "a", encoding="utf-8", newline="") as file:
            file.write(self._text([row]))

    def _rewrite(self, rows: list[dict[str, Any]]) -> None:
        self._columns |= dict.fromkeys(name for row in rows for name in row)
        write_atomic(self._path, self._text([{name: csv_cell(name) for name in self._columns}, *rows]))

    def _text(self, rows: Iterable[Mapping[str, Any]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self._columns, lineterminator="\n").writerows(map(jsonable, rows))
        return text.getvalue()
