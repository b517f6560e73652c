"""Files that survive a crash or a full disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make changes of the names in ``folder`` (new files, renames) survive a power failure."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file, and return when the disk has it."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write ``path``. A crash leaves the old content or the new one, never a part. Raises ``OSError``."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_synced(temporary, data.encode() if isinstance(data, str) else data)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_folder(folder: Path) -> None:
    """Remove a folder. After a crash, ``folder`` is complete or missing; a hidden folder may remain."""
    hidden = folder.with_name(f".removing-{folder.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    os.rename(folder, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


class AppendedFile:
    """A file of whole rows. A full disk does not stop the training: the first ``OSError`` is a warning, and rows that cannot be written are lost."""

    def __init__(self, path: Path, warned: Callable[[str], None] = lambda message: None):
        self.path, self._warned, self._has_failed = path, warned, False
        self._lock = threading.Lock()

    def append(self, row: bytes) -> bool:
        """Write ``row``. Returns whether it succeeded."""
        return self._attempt(lambda: self._write(row))

    def replace(self, content: bytes) -> bool:
        """Replace all rows. Returns whether it succeeded."""
        return self._attempt(lambda: write_atomic(self.path, content))

    def sync(self) -> None:
        """Return when the disk has all rows."""
        self._attempt(self._sync)

    def _attempt(self, write: Callable[[], None]) -> bool:
        with self._lock:
            try:
                write()
            except OSError as error:
                if not self._has_failed:
                    self._warned(f"Cannot write {self.path} ({error.strerror}): it gets no new rows until it can be written.")
                self._has_failed = True
                return False
        return True

    def _write(self, record: bytes) -> None:
        # Opened for each record: write_atomic may have replaced the file.
        with open(self.path, "ab", buffering=0) as file:
            end, left = file.seek(0, os.SEEK_END), memoryview(record)
            try:
                while left:
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(end)  # the disk may have stored a part of the record
                raise

    def _sync(self) -> None:
        if self.path.exists():
            with open(self.path, "ab") as file:
                os.fsync(file.fileno())
            sync_folder(self.path.parent)
