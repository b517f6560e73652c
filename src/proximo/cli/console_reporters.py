"""What the reporters of trainings and of studies share: where they print, warnings, and a display that is redrawn in place."""

from __future__ import annotations

import abc
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from proximo.cli import print_warnings
from proximo.errors import printable
from proximo.tracking.lasting_stream import discard_output, lasting
from proximo.tracking.progress_displays import draws_in_place


def _warn_of_stream(message: str) -> None:
    try:
        print_warnings([message])
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
        file=lasting(file, _warn_of_stream) if file else None,
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
