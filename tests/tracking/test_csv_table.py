"""``metrics.csv``: the rows of ``metrics.jsonl``, whatever columns appear when, and whatever happens to the file."""

import csv
import os

from proximo.storage import atomic_files
from proximo.tracking.csv_table import CsvTable
from proximo.tracking.json_lines import JsonLines, read_rows
from proximo.tracking.tracker import TrackedRun


class Run:
    """A run whose rows go to both files, as in a training."""

    def __init__(self, run_dir):
        self.warnings = []
        self.lines = JsonLines(run_dir / "metrics.jsonl")
        self.table = CsvTable(TrackedRun(run_dir, {}, None, self.warnings.append))

    def write(self, step, **values):
        for tracker in (self.lines, self.table):
            tracker.write(step, values)


def table(run_dir):
    with open(run_dir / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def agree(run_dir):
    """Whether the table has the rows of metrics.jsonl, number by number."""
    cells = [{name: float(cell) for name, cell in row.items() if cell} for row in table(run_dir)]
    lines = [{name: value for name, value in row.items() if value is not None} for row in read_rows(run_dir / "metrics.jsonl")]
    return cells == lines


def test_row_is_a_line_and_missing_number_is_empty(tmp_path):
    run = Run(tmp_path)
    run.write(10, **{"a": 0.1, "=1+1": float("nan")})
    run.write(20, **{"a": float("inf"), "=1+1": 2.0})
    assert (tmp_path / "metrics.csv").read_text() == "step,a,'=1+1\n10,0.1,\n20,,2.0\n", "a name is no formula"


def test_later_columns_come_last_and_are_empty_in_earlier_rows(tmp_path):
    run = Run(tmp_path)
    run.write(10, a=1.0)
    run.write(20, a=2.0, c=3.0)
    run.write(20, b=4.0)
    run.write(30, a=5.0)
    assert (tmp_path / "metrics.csv").read_text() == "step,a,c,b\n10,1.0,,\n20,2.0,3.0,\n20,,,4.0\n30,5.0,,\n"
    assert agree(tmp_path)


def test_unwritable_file_warns_once_and_is_completed_later(tmp_path, monkeypatch):
    run = Run(tmp_path)
    run.write(10, a=1.0)

    def locked(path, *rest, **options):
        if "metrics.csv" in str(path):
            raise PermissionError(13, "Permission denied")
        return open(path, *rest, **options)

    with monkeypatch.context() as patch:  # another program has it open, as on Windows
        patch.setattr(os, "replace", locked)
        patch.setattr(atomic_files, "open", locked, raising=False)
        run.write(20, a=2.0)
        run.write(30, a=3.0)
    assert run.warnings == [
        f"Cannot write {tmp_path / 'metrics.csv'} (Permission denied): it gets no new rows until it can be written."
    ]
    run.table.close()
    assert agree(tmp_path)
    assert len(table(tmp_path)) == 3
