"""The lock of a run directory."""

from __future__ import annotations

import json
import os
import socket
from datetime import datetime
from pathlib import Path

import filelock

from proximo.errors import RunDirectoryError
from proximo.serialization import json_object
from proximo.storage.atomic_files import write_atomic

CONFLICT = "two trainings cannot write into one run. Stop that process, or start a new run with another --name."


class RunLock:
    """Context manager: only this process writes into ``run_dir``. The operating system holds the lock, so it ends with the process.

    Raises ``RunDirectoryError`` if another process has the lock, or if the folder is missing or cannot be written. ``conflict`` is the end of
    the message for the first case.
    """

    def __init__(self, run_dir: Path, conflict: str = CONFLICT):
        self.run_dir, self._conflict = run_dir, conflict
        self._owner = run_dir / ".lock.json"
        self._lock = filelock.FileLock(run_dir / ".lock", timeout=0)

    def __enter__(self) -> RunLock:
        if not self.run_dir.is_dir():  # filelock would create it
            raise RunDirectoryError(f"Cannot lock {self.run_dir}: there is no such run directory.")
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise RunDirectoryError(f"{self.run_dir} is in use by {self._describe_owner()}: {self._conflict}") from None
        except OSError as error:
            raise RunDirectoryError(f"Cannot lock {self.run_dir} ({error.strerror}): check its permissions.") from error
        started = datetime.now().isoformat(sep=" ", timespec="seconds")
        try:
            write_atomic(self._owner, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": started}))
        except OSError as error:
            self._lock.release()
            raise RunDirectoryError(
                f"Cannot write into {self.run_dir} ({error.strerror}): check its disk and its permissions."
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._owner.unlink(missing_ok=True)
        self._lock.release()

    def _describe_owner(self) -> str:
        owner = json_object(self._owner)
        if {"pid", "host", "started"} - owner.keys():
            return "another process"
        return f"process {owner['pid']} on {owner['host']} (since {owner['started']})"


def in_use(run_dir: Path) -> bool:
    """Whether a process trains in ``run_dir``. A killed process leaves ``.lock.json``, but not the lock. If the lock cannot be tried (a run of
    another user), that file decides."""
    if not (run_dir / ".lock.json").exists():
        return False
    try:
        with filelock.FileLock(run_dir / ".lock", timeout=0):
            return False
    except (filelock.Timeout, OSError):
        return True
