"""``metrics.csv``: the rows of ``metrics.jsonl``, whatever columns appear when, and whatever happens to the file."""

import os

from proximo.storage import atomic_files
from proximo.tracking.csv_table import CsvTable
from proximo.tracking.tracker import TrackedRun


def test_later_columns_come_last_and_an_unwritable_file_warns_once_and_is_completed_later(tmp_path, monkeypatch):
    warnings = []
    table = CsvTable(TrackedRun(tmp_path, {}, None, warnings.append))
    table.write(10, {"a": 0.1, "=1+1": float("nan")})
    table.write(20, {"a": float("inf"), "c": 3.0})
    table.write(20, {"b": 4.0})

    def locked(path, *rest, **options):
        if "metrics.csv" in str(path):
            raise PermissionError(13, "Permission denied")
        return open(path, *rest, **options)

    def write_while_locked(*steps):
        with monkeypatch.context() as patch:  # another program has it open, as on Windows
            patch.setattr(os, "replace", locked)
            patch.setattr(atomic_files, "open", locked, raising=False)
            for step in steps:
                table.write(step, {"a": 2.0})

    write_while_locked(30, 40)
    assert warnings == [
        f"Cannot write {tmp_path / 'metrics.csv'} (Permission denied): it gets no new rows until it can be written."
    ]
    for step in (50, 60):
        table.write(step, {"a": 3.0})
    write_while_locked(70)
    table.close()
    assert (tmp_path / "metrics.csv").read_text() == (
        "step,a,'=1+1,c,b\n10,0.1,,,\n20,,,3.0,\n20,,,,4.0\n30,2.0,,,\n40,2.0,,,\n50,3.0,,,\n60,3.0,,,\n70,2.0,,,\n"
    ), "a name is no formula"
