"""Anonymous shared memory. It has no name, so nothing remains if a process is killed."""

from __future__ import annotations

import mmap
import os
import secrets
import sys
import tempfile
from dataclasses import dataclass


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

    def close(self) -> None:
        """Close the descriptor. The memory itself lives as long as an array uses it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)


def allocate(size: int) -> Handle:
    """Allocate ``size`` zeroed bytes. Child processes receive the handle and inherit its descriptor."""
    if sys.platform == "win32":
        return Handle(size, tag=f"proximo-{os.getpid()}-{secrets.token_hex(4)}")
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("proximo")
    else:
        descriptor, name = tempfile.mkstemp()
        os.unlink(name)
    os.ftruncate(descriptor, size)
    return Handle(size, descriptor)
