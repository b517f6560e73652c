"""Bytes that several processes see and that have no name: nothing can be left behind, whoever is killed."""

from __future__ import annotations

import mmap
import os
import secrets
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Handle:
    """What a child process needs to see the same bytes: an inherited file descriptor, or on Windows a tag."""

    size: int
    descriptor: int = -1
    tag: str = ""

    def attach(self) -> mmap.mmap:
        """The bytes, in a process that inherited the descriptor."""
        if self.tag:
            return mmap.mmap(-1, self.size, tagname=self.tag)  # type: ignore[call-arg]  # Windows only
        return mmap.mmap(self.descriptor, self.size)


class SharedBytes:
    """``size`` bytes, zero at first. Children get ``handle``, and on POSIX its descriptor by inheritance."""

    def __init__(self, size: int):
        if sys.platform == "win32":
            self.handle = Handle(size, tag=f"proximo-{os.getpid()}-{secrets.token_hex(4)}")
        else:
            self.handle = Handle(size, descriptor=_nameless_file())
            os.ftruncate(self.handle.descriptor, size)
        self.memory = self.handle.attach()

    def close(self) -> None:
        """Forget the descriptor; the memory itself lives as long as an array upon it."""
        if self.handle.descriptor >= 0:
            os.close(self.handle.descriptor)


def _nameless_file() -> int:
    """A descriptor of memory without a name: memfd where the system has it, else a file that is unlinked at once."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("proximo")
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    descriptor, name = tempfile.mkstemp(dir=folder)
    os.unlink(name)
    return descriptor
