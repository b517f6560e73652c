"""``metrics.csv``: the rows of ``metrics.jsonl``, whatever columns appear when, and whatever happens to the file."""

import os

from proximo.storage import atomic_files
from proximo.tracking.csv_table import CsvTable
from proximo.tracking.tracker import TrackedRun


def test_cells_are_empty_without_a_number_and_later_columns_come_last(tmp_path):
    table = CsvTable(TrackedRun(tmp_path, {}))
    table.write(10, {"a": 0.1, "=1+1": float("nan")})
    table.write(20, {"a": float("inf"), "c": 3.0})
    table.write(20, {"b": 4.0})
    table.write(30, {"a": 5.0})
    text = (tmp_path / "metrics.csv").read_text()
    assert text == "step,a,'=1+1,c,b\n10,0.1,,,\n20,,,3.0,\n20,,,,4.0\n30,5.0,,,\n", "a name is no formula"


def test_unwritable_file_warns_once_and_is_completed_later(tmp_path, monkeypatch):
    warnings = []
    table = CsvTable(TrackedRun(tmp_path, {}, None, warnings.append))
    table.write(10, {"a": 1.0})

    def locked(path, *rest, **options):
        if "metrics.csv" in str(path):
            raise PermissionError(13, "Permission denied")
        return open(path, *rest, **options)

    with monkeypatch.context() as patch:  # another program has it open, as on Windows
        patch.setattr(os, "replace", locked)
        patch.setattr(atomic_files, "open", locked, raising=False)
        table.write(20, {"a": 2.0})
        table.write(25, {"a": 2.5})
    assert warnings == [
        f"Cannot write {tmp_path / 'metrics.csv'} (Permission denied): it gets no new rows until it can be written."
    ]
    table.write(30, {"a": 3.0})
    assert (tmp_path / "metrics.csv").read_text() == "step,a\n10,1.0\n20,2.0\n25,2.5\n30,3.0\n"
