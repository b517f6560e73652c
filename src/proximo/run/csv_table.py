"""``metrics.csv``: the rows of ``metrics.jsonl`` as a table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from typing import Any, SupportsFloat

from proximo.run.files import write_atomic
from proximo.run.sinks import METRICS, Sink, TrackedRun, read_rows


class CsvTable(Sink):
    """A column for each name that has come up, in that order; a cell is empty where a row has no such number.

    The table derives from ``metrics.jsonl``: a new column, a resume and a failure to write make it anew from there. So it has the
    same rows, each once, whatever happened.
    """

    def __init__(self, run: TrackedRun):
        self._run, self._path, self._source = run, run.run_dir / "metrics.csv", run.run_dir / METRICS
        self._columns: dict[str, None] = {"step": None}
        self._told = False
        kept = [] if run.resumed_at is None else [row for row in read_rows(self._source) if row["step"] <= run.resumed_at]
        self._stands = self._attempt(lambda: self._rewrite(kept))

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Append the row; all rows are written anew where it has a new column."""
        if self._stands and values.keys() <= self._columns.keys():
            row = {"step": int(step), **{name: float(value) for name, value in values.items()}}
            self._stands = self._attempt(lambda: self._append(row))
        else:
            rows = read_rows(self._source)
            # On a full disk the newest row may still be in memory: then the next row writes the table again.
            complete = bool(rows) and rows[-1].keys() == {"step", *values} and rows[-1]["step"] == step
            self._stands = self._attempt(lambda: self._rewrite(rows)) and complete

    def close(self) -> None:
        """What could not be written before, as while another program had the file open, is tried once more."""
        if not self._stands:
            self._attempt(lambda: self._rewrite(read_rows(self._source)))

    def _append(self, row: Mapping[str, Any]) -> None:
        with open(self._path, "a", encoding="utf-8", newline="") as file:
            file.write(self._text([row]))

    def _rewrite(self, rows: list[dict[str, Any]]) -> None:
        self._columns |= dict.fromkeys(name for row in rows for name in row)
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(self._columns)
        write_atomic(self._path, header.getvalue() + self._text(rows))

    def _text(self, rows: Iterable[Mapping[str, Any]]) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([_cell(row.get(name)) for name in self._columns] for row in rows)
        return text.getvalue()

    def _attempt(self, write: Any) -> bool:
        """Whether ``write()`` has succeeded; the first failure is told."""
        try:
            write()
        except OSError as error:
            if not self._told:
                self._told = True
                self._run.warned(f"Cannot write {self._path} ({error.strerror}): it is tried again with the next row.")
            return False
        return True


def _cell(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and not math.isfinite(value)) else value
