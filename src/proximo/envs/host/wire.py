"""How a pool and its workers talk: fixed commands of a few bytes, objects behind their length, over two pipes."""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

COMMAND = struct.Struct("<BBI")
"""What, in which slab, in which row."""
STEP, RESET, CLOSE = range(3)

DONE, CUT, FAULT, LOST = b".", b"t", b"!", b""
"""Replies: done; done, and an episode was truncated; an exception follows; nobody is there any more."""

_LENGTH = struct.Struct("<Q")


def read_exactly(descriptor: int, size: int) -> bytes:
    """``size`` bytes; raises ``EOFError`` when the other side has gone."""
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def write_all(descriptor: int, data: bytes) -> None:
    """All of ``data``; a pipe takes no more than it has room for at once."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_object(descriptor: int, value: Any) -> None:
    """A picklable object. Both ends are this very program: nothing from outside is unpickled."""
    data = pickle.dumps(value)
    write_all(descriptor, _LENGTH.pack(len(data)) + data)


def read_object(descriptor: int) -> Any:
    """What ``write_object`` has sent."""
    return pickle.loads(read_exactly(descriptor, _LENGTH.unpack(read_exactly(descriptor, _LENGTH.size))[0]))
