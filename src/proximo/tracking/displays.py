"""Where progress is shown: a console whose write errors do not end the work, bars, and the cells of a notebook."""

from __future__ import annotations

import errno
import html
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from proximo.errors import discard_output

if TYPE_CHECKING:
    from proximo.tracking.progress import DisplayReporter

NO_SCREEN = ("CI", "JPY_PARENT_PID", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE")
"""Environment variables of CI services and notebooks, whose terminals keep every redrawn line."""


def draws_in_place(stream: TextIO | None) -> bool:
    """Whether ``stream`` is a terminal on which a bar can be redrawn in place."""
    if stream is None or not stream.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return all(os.environ.get(name, "").lower() in ("", "0", "false") for name in NO_SCREEN)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which displays HTML."""
    return Console().is_jupyter


def display(content: dict[str, str]) -> Any:
    """Show text by MIME type below the current cell. ``update(content, raw=True)`` of the result replaces it."""
    from IPython.display import display as display_below  # pyright: ignore[reportMissingImports]

    return display_below(content, raw=True, display_id=True)


def console_on(stream: TextIO | None, warn: Callable[[str], None]) -> Console:
    """A console that prints to ``stream``. ``warn`` receives a warning if it cannot."""
    return Console(
        file=cast(TextIO, LastingStream(stream, warn)) if stream else None,
        highlight=False,
        emoji=False,  # `my_envs:Mask:` is a name
        soft_wrap=True,
        force_jupyter=False,  # in a notebook each line would become an element of the page
        force_terminal=draws_in_place(stream) or None,
    )


class LastingStream:
    """A stream without its write errors. If the reader of a pipe has ended or a terminal is closed, all later text is
    discarded. After another error, only the failed text is lost. ``warn`` receives the first error."""

    def __init__(self, stream: TextIO, warn: Callable[[str], None]):
        self._stream, self._warn = stream, warn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, write: Callable[..., object], *text: str) -> None:
        try:
            write(*text)
        except OSError as error:
            is_gone = error.errno in (errno.EPIPE, errno.EIO, errno.EBADF)
            if is_gone:
                discard_output(self._stream)
            warn, self._warn = self._warn, lambda message: None
            lost = "nothing more is shown" if is_gone else "a part of it is lost"
            warn(f"the output cannot be written ({error.strerror}), so {lost}. The work continues; Ctrl-C stops it.")


class TerminalBar(Live):
    """Shows ``work`` as a bar on its terminal, below the lines. ``transient`` removes the bar at the end."""

    def __init__(self, work: DisplayReporter, transient: bool = False):
        self._work, out, err = work, sys.stdout.isatty(), sys.stderr.isatty()
        super().__init__(console=work.console, transient=transient, redirect_stdout=out, redirect_stderr=err)

    def get_renderable(self) -> Table:
        """The bar as it is now."""
        bar, work = Table.grid(padding=(0, 1), pad_edge=False, expand=True), self._work
        for ratio in (None, 1, None):
            bar.add_column(ratio=ratio, no_wrap=True, overflow="ellipsis")
        total = None if work.share is None else 1.0  # without a total it pulses
        bar.add_row(Text(work.activity), ProgressBar(total, work.share or 0.0), Text(work.figures))
        return bar


class NotebookBar:
    """Shows ``work`` as a bar in the output of a notebook's cell, with the methods of ``Live``."""

    def __init__(self, work: DisplayReporter):
        self._work, self._handle = work, None

    def start(self) -> None:
        """Show the bar."""
        self._handle = display(self._content())

    def refresh(self) -> None:
        """Show it as it is now."""
        if self._handle is not None:
            self._handle.update(self._content(), raw=True)

    stop = refresh

    def _content(self) -> dict[str, str]:
        """The bar by MIME type. A bar without a value is animated by the browser."""
        words = " · ".join(filter(None, (self._work.activity, self._work.figures)))
        value = "" if self._work.share is None else f' value="{self._work.share:.4f}"'
        return {"text/plain": words, "text/html": f"<progress{value}></progress> <code>{html.escape(words)}</code>"}
