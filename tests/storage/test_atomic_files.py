import contextlib
import os
import random
import re

import pytest

from disks import full_disk
from proximo.storage import atomic_files
from proximo.storage.atomic_files import AppendedFile, write_atomic


@pytest.mark.parametrize("operation", ["fsync", "replace"])
def test_failed_write_keeps_the_old_content(tmp_path, monkeypatch, operation):
    write_atomic(tmp_path / "a", "old")

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, operation, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old"


def test_records_survive_a_full_disk_complete_and_in_order(tmp_path):
    draw, warnings, written = random.Random(0), [], []
    file = AppendedFile(tmp_path / "rows", warnings.append)
    for i in range(300):
        record = b"%d:%s\n" % (i, b"x" * draw.randrange(9000))
        size = sum(map(len, written))
        with full_disk(size + draw.randrange(12_000)) if draw.random() < 0.5 else contextlib.nullcontext():
            file.append(record)
        written.append(record)
        data = (tmp_path / "rows").read_bytes()
        assert b"".join(written).startswith(data)
        assert data.endswith(b"\n"), "a part of a record"
    file.close()
    assert (tmp_path / "rows").read_bytes() == b"".join(written)
    (warning,) = warnings
    assert re.fullmatch(
        r"Cannot write .*rows \(File too large\): its rows stay in memory until it can be written\. Free some space on its disk\.",
        warning,
    )


def test_rows_that_cannot_be_written_are_reported_at_close(tmp_path):
    warnings = []
    file = AppendedFile(tmp_path / "rows", warnings.append)
    with full_disk():
        file.append(b"row\n")
        file.close()
    assert "last rows" in warnings[1]
    assert "are lost" in warnings[1]


def test_too_many_waiting_rows_are_reported_lost_once(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_files, "MAX_WAITING_BYTES", 10)
    warnings = []
    file = AppendedFile(tmp_path / "rows", warnings.append)
    with full_disk():
        for _ in range(9):
            file.append(b"row\n")
    file.append(b"last\n")
    assert (tmp_path / "rows").read_bytes() == b"last\n"
    assert len(warnings) == 2
    assert "are lost" in warnings[1]


def test_atomic_write_on_a_full_disk_keeps_the_old_file(tmp_path):
    write_atomic(tmp_path / "a", "old")
    with full_disk(), pytest.raises(OSError, match="too large"):
        write_atomic(tmp_path / "a", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old"}
