"""Messages between the training process and its workers, over two pipes.

Commands have a fixed size. Objects are pickled, after their length.
"""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

COMMAND = struct.Struct("<BI")
"""Command, step."""
STEP, RESET, CLOSE = range(3)

DONE, TRUNCATED, FAULT, LOST = b".", b"t", b"!", b""
"""Replies: done; done, and an episode was truncated; an exception follows; the worker has ended."""

_LENGTH = struct.Struct("<Q")


def read_exactly(descriptor: int, size: int) -> bytes:
    """Read ``size`` bytes. Raises ``EOFError`` if the other side has ended."""
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``; a pipe accepts only as much as it has room for."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_object(descriptor: int, value: Any) -> None:
    """Write a picklable object. Both ends are this program, so no foreign data is unpickled."""
    data = pickle.dumps(value)
    write_all(descriptor, _LENGTH.pack(len(data)) + data)


def read_object(descriptor: int) -> Any:
    """Read what ``write_object`` wrote."""
    return pickle.loads(read_exactly(descriptor, _LENGTH.unpack(read_exactly(descriptor, _LENGTH.size))[0]))
