"""Standard output and error: redirected or discarded, also for native code."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def redirected(descriptor: int, target: int) -> Iterator[int]:
    """Redirect standard output (1) or error (2) to the file ``target``, also of native code. Yields another descriptor of its file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(descriptor)
    try:
        os.dup2(target, descriptor)
        yield kept
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)


def discard_output(stream: TextIO) -> None:
    """Discard what is written to ``stream`` from now on, also by Python at its exit, which must not fail."""
    with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
