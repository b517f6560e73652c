"""The lock of a run directory keeps out a second writer until its process ends."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from disks import full_disk
from proximo.config import Config, override
from proximo.errors import RunDirectoryError
from proximo.storage import run_directory
from proximo.storage.run_lock import RunLock

SRC = Path(run_directory.__file__).parents[2]
CONFIG = override(
    Config(), {"id": "gymnax:CartPole-v1", "hidden_sizes": (32, 16), "learning_rate": "linear(3e-4, 0)", "gamma": 0.9}
)


def test_lock_on_a_full_disk_raises_and_leaves_nothing(tmp_path):
    with full_disk(), pytest.raises(RunDirectoryError, match=rf"Cannot write into {tmp_path} \(File too large\)"):
        RunLock(tmp_path).__enter__()
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == []
    with RunLock(tmp_path):
        pass


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of ``tmp_path``."""
    program = f"""
        import pathlib, time
        from proximo.storage.run_lock import RunLock
        with RunLock(pathlib.Path({str(tmp_path)!r})):
            print("locked", flush=True)
            time.sleep(60)
    """
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_lock_of_another_process_raises_until_it_dies(tmp_path, holder):
    with pytest.raises(RunDirectoryError, match=rf"in use by process {holder.pid} on \S+ \(since 20.*--name"):
        RunLock(tmp_path).__enter__()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert json.loads((tmp_path / ".lock.json").read_bytes())["pid"] == holder.pid
    with RunLock(tmp_path):
        assert json.loads((tmp_path / ".lock.json").read_bytes())["pid"] == os.getpid()


def test_only_a_released_lock_can_be_acquired_again(tmp_path):
    with RunLock(tmp_path):
        (tmp_path / ".lock.json").write_text("{torn")
        with pytest.raises(RunDirectoryError, match=r"in use by process \? on \?"):
            RunLock(tmp_path).__enter__()
    assert not (tmp_path / ".lock.json").exists()
    with RunLock(tmp_path):
        assert (tmp_path / ".lock.json").exists()


def test_missing_run_directory_cannot_be_locked(tmp_path):
    with pytest.raises(RunDirectoryError, match=r"Cannot lock .*nowhere: there is no such run directory"):
        RunLock(tmp_path / "nowhere").__enter__()
    assert not (tmp_path / "nowhere").exists()
