"""A text stream whose write errors do not end the work."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from typing import Any, TextIO, cast


def lasting(stream: TextIO, warn: Callable[[str], None]) -> TextIO:
    """``stream`` without its write errors. If the reader of a pipe has ended or a terminal is closed, all later text is discarded. After another
    error, such as a full disk, only the failed text is lost. ``warn`` receives the first error."""
    return cast(TextIO, _LastingStream(stream, warn))


def discard_output(stream: TextIO) -> None:
    """Discard what is written to ``stream`` from now on. Python writes at its exit what the stream still has, and must not fail then."""
    with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


class _LastingStream:
    def __init__(self, stream: TextIO, warn: Callable[[str], None]):
        self._stream, self._warn = stream, warn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            is_gone = error.errno in (errno.EPIPE, errno.EIO, errno.EBADF)
            if is_gone:
                discard_output(self._stream)
            warn, self._warn = self._warn, lambda message: None
            lost = "nothing more is shown" if is_gone else "a part of it is lost"
            reason = f"the output cannot be written ({error.strerror})"
            warn(f"{reason}, so {lost}. The work continues; Ctrl-C stops it.")
