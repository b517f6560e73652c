"""The lock of a run directory keeps out a second writer until its process ends."""

import json
import os
import signal
import subprocess
import sys

import pytest

from disks import full_disk
from proximo.errors import RunDirectoryError
from proximo.storage.run_directory import locked

PROGRAM = """
import pathlib, sys, time
from proximo.storage.run_directory import locked
with locked(pathlib.Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_lock_on_a_full_disk_raises_and_leaves_nothing(tmp_path):
    with full_disk(), pytest.raises(RunDirectoryError, match=rf"Cannot write into {tmp_path} \(File too large\)"):
        locked(tmp_path).__enter__()
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == []
    with locked(tmp_path):
        pass


def test_lock_of_another_process_raises_until_it_dies(tmp_path):
    with subprocess.Popen([sys.executable, "-c", PROGRAM, tmp_path], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RunDirectoryError, match=rf"in use by process {holder.pid} on \S+ \(since 20.*--name"):
            locked(tmp_path).__enter__()
        holder.send_signal(signal.SIGKILL)
    assert json.loads((tmp_path / ".lock.json").read_bytes())["pid"] == holder.pid
    with locked(tmp_path):
        assert json.loads((tmp_path / ".lock.json").read_bytes())["pid"] == os.getpid()
        (tmp_path / ".lock.json").write_text("{torn")
        with pytest.raises(RunDirectoryError, match=r"in use by process \? on \?"):
            locked(tmp_path).__enter__()
    assert not (tmp_path / ".lock.json").exists()
    with locked(tmp_path):
        pass


def test_missing_run_directory_cannot_be_locked(tmp_path):
    with pytest.raises(RunDirectoryError, match=r"Cannot lock .*nowhere: there is no such run directory"):
        locked(tmp_path / "nowhere").__enter__()
    assert not (tmp_path / "nowhere").exists()
