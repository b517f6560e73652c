"""Displays of a training's progress: a bar on a terminal or in a notebook, elsewhere a line every ten seconds."""

from __future__ import annotations

import contextlib
import html
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from rich import progress as rich_progress
from rich.console import Console
from rich.table import Column
from rich.text import Text

from proximo.config import Config
from proximo.errors import ConfigError
from proximo.notebook import display, in_notebook
from proximo.tracking.lasting_stream import lasting
from proximo.tracking.progress import Progress
from proximo.tracking.reporter import Reporter

LINE_SECONDS = 10.0
NO_SCREEN = ("CI", "JPY_PARENT_PID", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE")
"""Environment variables that CI services and notebooks set."""


def draws_in_place(stream: TextIO | None) -> bool:
    """Whether ``stream`` is a terminal on which a display can be redrawn in place.

    Pipes and files are not, even with ``FORCE_COLOR``. The terminals of CI services and notebooks keep every redrawn line.
    """
    if stream is None or not stream.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return all(os.environ.get(name, "").lower() in ("", "0", "false") for name in NO_SCREEN)


class ProgressLines(Progress):
    """Prints how long the first compilation takes, then a line every ten seconds."""

    def __init__(self, write: Callable[[str], None], warn: Callable[[str], None] = lambda message: None):
        super().__init__(warn)
        self._write = write
        self._printed_at = 0.0
        self._compiled = False

    def compiling(self) -> None:
        super().compiling()
        if not self._compiled:
            self._write("compiling…")

    def compiled(self, how: str) -> None:
        if not self._compiled:
            self._write(f"compiled in {time.monotonic() - self.state_since:.1f} s")
        self._compiled = True
        super().compiled(how)

    def advanced(self, steps: int, steps_per_second: float, recent_return: float | None) -> None:
        super().advanced(steps, steps_per_second, recent_return)
        now = time.monotonic()
        self._printed_at = self._printed_at or now
        if now - self._printed_at >= LINE_SECONDS:
            self._printed_at = now
            self._write(self.line())


class _Words(rich_progress.ProgressColumn):
    """Text that is made anew whenever the bar is drawn."""

    def __init__(self, words: Callable[[], str]):
        super().__init__(table_column=Column(no_wrap=True, overflow="ellipsis"))
        self._words = words

    def render(self, task: rich_progress.Task) -> Text:
        return Text(self._words())


class TerminalBar:
    """A bar of ``progress`` on a terminal. ``transient`` removes it at the end."""

    def __init__(self, progress: Progress, console: Console, transient: bool = False):
        self._progress = progress
        columns = (_Words(lambda: progress.activity), rich_progress.BarColumn(None), _Words(lambda: progress.figures))
        stdout, stderr = (stream.isatty() for stream in (sys.stdout, sys.stderr))
        self._bar = rich_progress.Progress(
            *columns,
            console=console,
            refresh_per_second=4,
            transient=transient,
            expand=True,
            redirect_stdout=stdout,
            redirect_stderr=stderr,
        )
        self._task = self._bar.add_task("", total=None)

    def start(self) -> None:
        """Show the bar."""
        self._bar.start()

    def update(self) -> None:
        """Redraw it. Before the first update, its length is unknown and it pulses."""
        total = self._progress.total if self._progress.speed else None
        self._bar.update(self._task, total=total, completed=self._progress.steps)
        self._bar.refresh()

    def stop(self) -> None:
        """Draw it for the last time."""
        self._bar.stop()


class NotebookBar:
    """A bar of ``progress`` in the output of a notebook's cell."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._handle: Any = None

    def start(self) -> None:
        """Show the bar."""
        self._handle = display(self._content())

    def update(self) -> None:
        """Redraw it."""
        if self._handle is not None:
            self._handle.update(self._content(), raw=True)

    def stop(self) -> None:
        """Draw it for the last time."""
        self.update()
        self._handle = None

    def _content(self) -> dict[str, str]:
        """The bar by MIME type. A bar without a value is animated by the browser."""
        progress = self._progress
        words = " · ".join(filter(None, (progress.activity, progress.figures)))
        value = f' value="{progress.steps}" max="{progress.total}"' if progress.speed else ""
        return {"text/plain": words, "text/html": f"<progress{value}></progress> <code>{html.escape(words)}</code>"}


class ProgressBar(Progress):
    """Shows a training as the bar that ``make_bar`` makes. As a context manager, it draws the bar for the last time at the end."""

    def __init__(
        self, make_bar: Callable[[Progress], TerminalBar | NotebookBar], warn: Callable[[str], None] = lambda message: None
    ):
        super().__init__(warn)
        self.bar = make_bar(self)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def started(self, config: Config, run_dirs: list[Path], summary: dict[str, Any]) -> None:
        super().started(config, run_dirs, summary)
        self.bar.start()

    def _begin(self, state: str) -> None:
        super()._begin(state)
        self.bar.update()

    def advanced(self, steps: int, steps_per_second: float, recent_return: float | None) -> None:
        super().advanced(steps, steps_per_second, recent_return)
        self.bar.update()

    def exiting(self, message: str) -> None:
        self.bar.stop()

    def finished(self, results: list[Any]) -> None:
        self.bar.stop()


def check_progress(progress: bool | None, reporter: object | None) -> None:
    """Raise ``ConfigError`` if ``progress`` is not a boolean or None, or is true although a reporter is given."""
    if progress not in (None, True, False):
        raise ConfigError(f"progress = {progress!r}: expected True, False, or None for True on a terminal and in a notebook.")
    if reporter is not None and progress:
        raise ConfigError("progress = True, but reporter is given, which receives the progress: give one of them.")


@contextlib.contextmanager
def showing_progress(reporter: Reporter | None, progress: bool | None, default: Reporter) -> Iterator[Reporter]:
    """Context manager: the reporter of a training that Python code starts.

    It is ``reporter`` if given. Otherwise it is a display of the progress that passes warnings to ``default``: if ``progress`` is None, only
    on a terminal and in a notebook; if it is false, ``default`` itself.

    Raises:
        ConfigError: ``progress`` is not a boolean, or is true although a reporter is given.
    """
    check_progress(progress, reporter)
    if reporter is not None:
        yield reporter
        return
    if progress is not False and in_notebook():
        with ProgressBar(NotebookBar, default.warned) as shown:
            yield shown
    elif progress is not False and draws_in_place(sys.stdout):
        console = Console(file=lasting(sys.stdout, default.warned))
        with ProgressBar(lambda shown: TerminalBar(shown, console), default.warned) as shown:
            yield shown
    elif progress:
        file = sys.stdout and lasting(sys.stdout, default.warned)
        yield ProgressLines(lambda line: print(line, file=file, flush=True), default.warned)
    else:
        yield default
