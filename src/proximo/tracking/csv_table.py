"""``metrics.csv``: the rows of ``metrics.jsonl`` as a table."""

import csv
import io
from collections.abc import Mapping
from typing import Any

from proximo.serialization import csv_cell, jsonable
from proximo.storage.atomic_files import AppendedFile
from proximo.tracking.tracker import TrackedRun, Tracker, numbers


class CsvTable(Tracker):
    """A table with a column for each metric, in order of appearance. A cell is empty if its row has no such number.

    The table is rewritten for the first row, for a new column, and after a write that failed.
    """

    def __init__(self, run: TrackedRun):
        self._file = AppendedFile(run.run_dir / "metrics.csv", run.warned)
        self._rows: list[dict[str, Any]] = []
        self._columns = {"step": None}

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Append the row, or rewrite the table."""
        if row := numbers(values):
            self._rows.append({"step": int(step), **row})
            if row.keys() <= self._columns.keys() and self._file.is_complete:
                self._file.append(self._text(self._rows[-1:]))
            else:
                self._columns |= dict.fromkeys(row)
                self._rewrite()

    def close(self) -> None:
        """Rewrite the table if the last write failed, for example because another program had the file open."""
        if not self._file.is_complete:
            self._rewrite()

    def _rewrite(self) -> None:
        self._file.replace(self._text([{name: csv_cell(name) for name in self._columns}, *self._rows]))

    def _text(self, rows: list[dict[str, Any]]) -> bytes:
        text = io.StringIO()
        csv.DictWriter(text, self._columns, lineterminator="\n").writerows(map(jsonable, rows))
        return text.getvalue().encode()
