"""Files on a failing or full disk have their old content, or whole rows."""

import contextlib
import os
import random

import pytest

from disks import full_disk
from proximo.storage.atomic_files import AppendedFile, write_atomic


@pytest.mark.parametrize("operation", ["fsync", "replace", None])
def test_failed_write_keeps_the_old_content(tmp_path, monkeypatch, operation):
    write_atomic(tmp_path / "a", "old")

    def fail(*args):
        raise OSError(28, "No space left on device")

    if operation is not None:
        monkeypatch.setattr(os, operation, fail)
    with contextlib.nullcontext() if operation else full_disk(), pytest.raises(OSError, match=r"No space left|too large"):
        write_atomic(tmp_path / "a", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old"}


def test_records_on_a_full_disk_are_whole_or_lost_and_in_order(tmp_path):
    draw, warnings, written = random.Random(0), [], b""
    file = AppendedFile(tmp_path / "rows", warnings.append)
    for i in range(300):
        record, room = b"%d:%s\n" % (i, b"x" * draw.randrange(9000)), draw.choice([None, draw.randrange(12_000)])
        with full_disk(len(written) + room) if room is not None else contextlib.nullcontext():
            file.append(record)
            file.sync()
        written += record if room is None or room >= len(record) else b""
        assert (tmp_path / "rows").read_bytes() == written
    assert warnings == [f"Cannot write {tmp_path / 'rows'} (File too large): it gets no new rows until it can be written."]
