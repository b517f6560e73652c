"""``metrics.csv``: the rows of ``metrics.jsonl`` as a table."""

import csv
import io
from collections.abc import Mapping
from typing import Any

from proximo.serialization import csv_cell, jsonable
from proximo.storage.atomic_files import AppendedFile
from proximo.tracking.tracker import TrackedRun, Tracker, numbers


class CsvTable(Tracker):
    """A table with a column for each metric, in order of appearance. Cells without a number are empty."""

    def __init__(self, run: TrackedRun):
        self._file = AppendedFile(run.run_dir / "metrics.csv", run.warned)
        self._rows: list[dict[str, Any]] = []
        self._columns = {"step": None}

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Append the row. For a new column, and after a write that failed, rewrite the table."""
        if row := numbers(values):
            self._rows.append({"step": int(step), **row})
            is_whole = row.keys() <= self._columns.keys() and self._file.is_complete
            self._columns |= dict.fromkeys(row)
            if is_whole:
                self._file.append(self._text(self._rows[-1:]))
            else:
                self._rewrite()

    def close(self) -> None:
        """Rewrite the table if the last row could not be written, for example because another program had the file open."""
        if not self._file.is_complete:
            self._rewrite()

    def _rewrite(self) -> None:
        self._file.replace(self._text([{name: csv_cell(name) for name in self._columns}, *self._rows]))

    def _text(self, rows: list[dict[str, Any]]) -> bytes:
        text = io.StringIO()
        csv.DictWriter(text, self._columns, lineterminator="\n").writerows(map(jsonable, rows))
        return text.getvalue().encode()
