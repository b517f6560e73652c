"""What the reporters of trainings and of studies share: where they print, warnings, and a display that is redrawn in place."""

from __future__ import annotations

import abc
import contextlib
import errno
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from proximo.cli import discard_output, print_warnings
from proximo.errors import printable
from proximo.tracking.progress_displays import draws_in_place


class LastingStream:
    """A text stream whose write errors do not end the work.

    If the reader of a pipe has ended or a terminal is closed, everything that is written to ``stream`` later is discarded. After another
    error, such as that of a full disk, only the failed text is lost. Standard error gets one warning of each.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._has_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._fail(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        is_gone = error.errno in (errno.EPIPE, errno.EIO, errno.EBADF)
        if is_gone:
            discard_output(self._stream)
        elif self._has_lost:
            return
        self._has_lost = True
        lost = "nothing more is shown" if is_gone else "a part of it is lost"
        try:
            reason = f"the output cannot be written ({error.strerror})"
            print_warnings([f"{reason}, so {lost}. The work continues; Ctrl-C stops it."])
        except OSError:
            discard_output(sys.stderr)


@contextlib.contextmanager
def open_reporter(
    quiet_kind: Any, line_kind: Any, live_kind: Any, stream: TextIO, quiet: bool, as_json: bool = False
) -> Iterator[Any]:
    """Make the reporter for ``stream``: one of ``live_kind`` on a terminal, else one of ``line_kind``; if ``quiet``, one of
    ``quiet_kind``, which prints only warnings, to stderr.

    With ``as_json``, the reporter writes a JSON object with the error to the current standard output if the process ends while a compiled
    call still runs.
    """
    live = not quiet and draws_in_place(stream)
    file = sys.stderr if quiet else stream
    console = Console(
        file=cast(TextIO, LastingStream(file)) if file else None,
        highlight=False,
        emoji=False,  # `my_envs:Mask:` is a name
        soft_wrap=True,
        force_jupyter=False,  # in a notebook each line would become an element of the page
        force_terminal=True if live else None,
    )
    with os.fdopen(os.dup(1), "wb") if as_json else contextlib.nullcontext() as answer:
        reporter = (quiet_kind if quiet else live_kind if live else line_kind)(console, answer and answer.fileno())
        with reporter if live else contextlib.nullcontext():
            yield reporter


class ConsoleReporter:
    """Prints warnings and an early stop. ``answer`` is a file descriptor, or None. If the process ends while a compiled call still runs, a
    JSON object with the error is written to it."""

    def __init__(self, console: Console, answer: int | None = None):
        self.console, self.answer = console, answer

    def print(self, text: str) -> None:
        """Print ``text`` as it is: brackets are no markup."""
        self.console.print(printable(text), markup=False)

    def banner(self, rows: dict[str, str]) -> None:
        """Print one line for each entry that is not empty."""
        for name, text in rows.items():
            if text:
                self.print(f"{name:>12}  {text}")

    def warned(self, message: str) -> None:
        self.console.print(Text.assemble(("warning:", "yellow"), f" {printable(message)}"))

    def stopped(self, message: str) -> None:
        self.print(message)

    def exiting(self, message: str) -> None:
        if self.answer is not None:
            os.write(self.answer, f"{json.dumps({'error': message})}\n".encode())


class LiveDisplay(ConsoleReporter, abc.ABC):
    """Context manager that redraws ``display()`` in place. A subclass starts ``_live``; leaving the context stops it."""

    def __init__(self, console: Console, answer: int | None = None):
        super().__init__(console, answer)
        self._live = Live(console=console, refresh_per_second=4, transient=True, get_renderable=self.display)

    @abc.abstractmethod
    def display(self) -> RenderableType:
        """What the terminal shows now."""

    def __enter__(self) -> LiveDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def stopped(self, message: str) -> None:
        self._live.stop()
        super().stopped(message)
