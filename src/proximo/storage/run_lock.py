"""The lock of a run directory."""

import json
import os
import socket
from datetime import datetime
from pathlib import Path

import filelock

from proximo.errors import RunDirectoryError
from proximo.serialization import json_object
from proximo.storage.atomic_files import write_atomic

OWNER = ".lock.json"
"""File that names the process with the lock. A killed process leaves it, but not the lock."""


class RunLock:
    """Context manager: only this process writes into ``run_dir``. The operating system ends the lock with the process.

    Raises ``RunDirectoryError`` if another process has the lock, or if the folder cannot be written.
    """

    def __init__(self, run_dir: Path):
        self.run_dir, self._lock = run_dir, filelock.FileLock(run_dir / ".lock", timeout=0)

    def __enter__(self) -> "RunLock":
        if not self.run_dir.is_dir():  # filelock would create it
            raise RunDirectoryError(f"Cannot lock {self.run_dir}: there is no such run directory.")
        started = datetime.now().isoformat(sep=" ", timespec="seconds")
        try:
            self._lock.acquire()
            owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": started}
            write_atomic(self.run_dir / OWNER, json.dumps(owner))
        except filelock.Timeout:
            owner = {"pid": "?", "host": "?", "started": "?", **json_object(self.run_dir / OWNER)}
            raise RunDirectoryError(
                f"{self.run_dir} is in use by process {owner['pid']} on {owner['host']} (since {owner['started']}): two processes cannot write "
                "into one run. Stop that process, or start a new run with another --name (an agent: save it into another folder)."
            ) from None
        except OSError as error:
            self._lock.release()
            raise RunDirectoryError(
                f"Cannot write into {self.run_dir} ({error.strerror}): check its disk and its permissions."
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        (self.run_dir / OWNER).unlink(missing_ok=True)
        self._lock.release()


def in_use(run_dir: Path) -> bool:
    """Whether a process trains in ``run_dir``. True also if the lock belongs to another user."""
    if not (run_dir / OWNER).exists():
        return False
    try:
        with filelock.FileLock(run_dir / ".lock", timeout=0):
            return False
    except (filelock.Timeout, OSError):
        return True
