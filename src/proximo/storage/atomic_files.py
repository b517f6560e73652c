"""Files that survive a crash or a full disk."""

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
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


def remove(path: Path) -> None:
    """Remove a folder with its content, a file, or a link, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder. After a crash, ``folder`` is complete or missing; a hidden folder may remain."""
    hidden = folder.with_name(f".removing-{folder.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    os.rename(folder, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


class AppendedFile:
    """A file of whole rows. A row that cannot be written, as on a full disk, is lost; the first one is a warning."""

    def __init__(self, path: Path, warned: Callable[[str], None]):
        self.path, self.is_complete, self._warned, self._lock = path, True, warned, threading.Lock()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except OSError as error:
                self.is_complete = False
                self._warned(f"Cannot write {self.path} ({error.strerror}): it gets no new rows until it can be written.")
                self._warned = lambda message: None

    def append(self, row: bytes) -> None:
        """Write ``row``, or nothing of it. The file is opened again, because it may have been replaced."""
        with self._writing(), open(self.path, "ab", buffering=0) as file:
            end, left = file.seek(0, os.SEEK_END), memoryview(row)
            try:
                while left:
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(end)  # the disk may have stored a part of the row
                raise

    def replace(self, content: bytes) -> None:
        """Replace all rows."""
        with self._writing():
            write_atomic(self.path, content)
            self.is_complete = True

    def sync(self) -> None:
        """Return when the disk has all rows."""
        with self._writing(), contextlib.suppress(FileNotFoundError), open(self.path, "rb+") as file:
            os.fsync(file.fileno())
            sync_folder(self.path.parent)
