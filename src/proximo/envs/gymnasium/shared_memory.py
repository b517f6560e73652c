"""Anonymous shared memory. It has no name, so nothing remains if a process is killed."""

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
    """What a child process needs to map the memory: an inherited file descriptor, or a tag on Windows."""

    size: int
    descriptor: int = -1
    tag: str = ""

    def attach(self) -> mmap.mmap:
        """Map the memory, in a process that inherited the descriptor."""
        if self.tag:
            return mmap.mmap(-1, self.size, tagname=self.tag)  # type: ignore[call-arg]  # Windows only
        return mmap.mmap(self.descriptor, self.size)


class SharedBytes:
    """``size`` zeroed bytes. Child processes receive ``handle``, and on POSIX they inherit its descriptor."""

    def __init__(self, size: int):
        if sys.platform == "win32":
            self.handle = Handle(size, tag=f"proximo-{os.getpid()}-{secrets.token_hex(4)}")
        else:
            self.handle = Handle(size, descriptor=_nameless_file())
            os.ftruncate(self.handle.descriptor, size)
        self.memory = self.handle.attach()

    def close(self) -> None:
        """Close the descriptor. The memory itself lives as long as an array uses it."""
        if self.handle.descriptor >= 0:
            os.close(self.handle.descriptor)


def _nameless_file() -> int:
    """Open memory without a name: memfd if the system has it, else a file that is unlinked at once."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("proximo")
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    descriptor, name = tempfile.mkstemp(dir=folder)
    os.unlink(name)
    return descriptor
