"""What a person sees of a training or a study: its progress, as a bar or lines on a console or in a notebook."""

from __future__ import annotations

import contextlib
import errno
import html
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from proximo.config import Config
from proximo.errors import ConfigError, printable
from proximo.streams import discard_output
from proximo.tracking.reporter import Reporter

NO_SCREEN = ("CI", "JPY_PARENT_PID", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE")
"""Environment variables of CI services and notebooks, whose terminals keep every redrawn line."""
LINE_SECONDS = 10.0


def number(x: float | None) -> str:
    """A return with three significant digits or more, below 0.01 with two; a dash for None."""
    if x is None:
        return "–"
    size = abs(x)
    return f"{x:.2g}" if 0 < size < 0.01 else f"{x:#.3g}" if size < 9.995 else f"{x:,.1f}" if size < 10_000 else f"{x:,.0f}"


def amount(count: int, noun: str, plural: str = "s") -> str:
    """``1 update``, ``2 updates``."""
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


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


class DisplayReporter(Reporter):
    """Reports on a ``console``: the work as a bar that ``bar`` makes, or without one in a line every ten seconds.

    ``warn`` receives the warnings; by default they are printed. ``answer`` is the file descriptor of a command's standard
    output with ``--json``, to which ``exiting`` writes the error. If ``quiet``, only warnings and early stops are printed.
    """

    activity = figures = ""
    """What is being done, such as ``compiling… 0:12``, and how far it is; empty if there is nothing to show."""
    share: float | None = None
    """The share that is done, 0 … 1; None if it is not known yet."""
    _shown_at = 0.0

    def __init__(
        self,
        console: Console,
        bar: Callable[[DisplayReporter], TerminalBar | NotebookBar] | None = None,
        warn: Callable[[str], None] | None = None,
        answer: int | None = None,
        quiet: bool = False,
    ):
        self.console, self.bar, self._warn, self._answer, self._quiet = console, None, warn, answer, quiet
        self.bar = bar and bar(self)

    def warned(self, message: str) -> None:
        if self._warn is None:
            self.console.print(Text.assemble(("warning:", "yellow"), f" {printable(message)}"))
        else:
            self._warn(message)

    def stopped(self, message: str) -> None:
        self.console.print(printable(message), markup=False)

    def exiting(self, message: str) -> None:
        self.close()
        if self._answer is not None:
            os.write(self._answer, f"{json.dumps({'error': message})}\n".encode())

    def line(self, text: str) -> None:
        """Print ``text`` as it is: brackets are no markup."""
        if not self._quiet:
            self.console.print(printable(text), markup=False)

    def rows(self, rows: dict[str, str]) -> None:
        """Print one line for each entry that is not empty."""
        for name, text in rows.items():
            if text:
                self.line(f"{name:>12}  {text}")

    def note(self, text: str) -> None:
        """Print a line about what a bar shows by itself."""
        if self.bar is None:
            self.line(text)

    def start(self) -> None:
        """Show the work from now on."""
        if self.bar is not None:
            self.bar.start()

    def update(self) -> None:
        """Show how the work is now."""
        if self.bar is not None:
            self.bar.refresh()
        elif self.figures:
            now = time.monotonic()
            self._shown_at = self._shown_at or now
            if now - self._shown_at >= LINE_SECONDS:
                self._shown_at = now
                self.line(" · ".join(filter(None, (self.activity, self.figures))))

    def close(self) -> None:
        """Show it for the last time."""
        if self.bar is not None:
            self.bar.stop()


class TrainingProgress(DisplayReporter):
    """Shows the steps, returns and speed of a training, and the time left."""

    total = steps = started_at = 0
    state, state_since = "", 0.0
    """What takes time besides updates, such as ``compiling…``, and when it began; empty during updates."""
    group = ""
    """The seed that trains now, if seeds train one after another."""
    seeds = seeds_together = seeds_left = 1
    speed = evaluation_seconds = 0.0
    recent: float | None = None
    evaluation: float | None = None
    _compiled = False

    def started(self, config: Config, run_dirs: list[Path], summary: dict[str, str]) -> None:
        self.total = config.total_updates * config.batch_size
        self.seeds = self.seeds_left = max(1, len(run_dirs))
        self.start()

    def seeds_started(self, run_dirs: list[Path], steps: int) -> None:
        self.steps = self.started_at = steps
        self.recent, self.evaluation, self.evaluation_seconds = None, None, 0.0
        self.seeds_together = max(1, len(run_dirs))
        self.seeds_left -= self.seeds_together
        self.group = run_dirs[0].name if self.seeds > self.seeds_together else ""

    def compiling(self) -> None:
        self._begin("compiling…")
        if not self._compiled:
            self.note("compiling…")

    def compiled(self, how: str) -> None:
        if not self._compiled:
            self.note(f"compiled in {time.monotonic() - self.state_since:.1f} s")
        self._compiled = True
        self._begin("")

    def evaluating(self) -> None:
        self._begin("evaluating…")

    def stopping(self) -> None:
        self.note("stopping after the current update (press Ctrl-C again to stop at once)")
        self._begin("stopping…")

    def _begin(self, state: str) -> None:
        self.state, self.state_since = state, time.monotonic()
        self.update()

    def advanced(self, steps: int, steps_per_second: float, recent_return: float | None) -> None:
        self.steps, self.recent = steps, recent_return
        self.speed = steps_per_second if not self.speed else 0.7 * self.speed + 0.3 * steps_per_second
        self._begin("")

    def evaluated(self, steps: int, summaries: list[dict[str, Any]]) -> None:
        self.evaluation_seconds += time.monotonic() - self.state_since
        self.evaluation = sum(s["return_mean"] for s in summaries) / len(summaries)
        self._begin("")

    def finished(self, results: list[Any]) -> None:
        self.close()

    @property
    def activity(self) -> str:
        elapsed = duration(time.monotonic() - self.state_since) if self.state else ""
        return " ".join(filter(None, (self.group, self.state, elapsed)))

    @property
    def figures(self) -> str:
        if not self.speed:
            return ""
        parts = [f"{self.steps:,} ({self.steps / self.total:.0%})", f"return {number(self.recent)}"]
        if not self.state:  # then a terminal of 80 columns has room for them
            parts += [f"eval {number(self.evaluation)}", f"{self.speed:,.0f} steps/s"]
        # From the speed and the evaluations so far, for the seeds that train together and those that wait.
        steps = (self.total - self.steps) * self.seeds_together + self.total * self.seeds_left
        done = max(1, self.steps - self.started_at) * self.seeds_together
        left = steps / self.speed + steps * self.evaluation_seconds / done
        return " · ".join([*parts, f"{duration(left)} left"])

    @property
    def share(self) -> float | None:
        return self.steps / self.total if self.speed else None


class StudyProgress(DisplayReporter):
    """Shows what is searched, a line for each finished trial, and how far the trials in training are."""

    total = over = 0

    def study_started(self, folder: Path, plan: Any, trials: list[Any], shaping: set[str]) -> None:
        self.total, self.over = plan.trials, len(trials)
        seeds = plan.seeds_of("trial")
        named = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}–{seeds[-1]}"
        finished = f", {self.over} of them finished" if self.over else ""
        together = f", {plan.together} in one program" if plan.together > 1 else ""
        self.rows(
            {
                "environment": plan.base.env.id,
                "trials": f"{plan.trials}{finished}, of {plan.base.ppo.total_steps:,} steps each, {named}{together}",
                "searched": ", ".join(name for name in plan.space if name not in shaping),
                "by program": ", ".join(name for name in plan.space if name in shaping),
                "study": str(folder),
            }
        )
        self.start()

    def trials_started(self, what: str) -> None:
        self.line(what)
        self._what = what.partition(" (")[0]  # a bar has no room for the settings
        self.activity, self.figures, self.share = f"{self._what}: compiling…", "", None
        self.update()

    def trials_advanced(self, share: float) -> None:
        self.activity, self.figures, self.share = self._what, f"{share:.0%}", share
        self.update()

    def trial_finished(self, trial: Any, best: Any, seconds_left: float) -> None:
        self.over += 1
        score = {"done": number(trial.score), "pruned": f"{number(trial.score)} pruned", "failed": f"failed: {trial.reason}"}
        best_score = "" if best is None else f" · best {number(best.score)} ({best.name.removeprefix('the ')})"
        left = f"{self.over} of {self.total} finished · {duration(seconds_left)} left"
        self.line(f"{trial.name.removeprefix('the '):<10} {score[trial.state]}{best_score} · {left}")

    def stopping(self) -> None:
        self.line("stopping: --resume restarts the trials in training (press Ctrl-C again to stop at once)")


@contextlib.contextmanager
def showing_progress(
    reporter: Reporter | None, progress: bool | None, default: Reporter, kind: type[DisplayReporter] = TrainingProgress
) -> Iterator[Reporter]:
    """Context manager: the reporter of a training or a study that Python code starts.

    It is ``reporter`` if given, else a ``kind`` that passes warnings to ``default``: if ``progress`` is None, only on a
    terminal and in a notebook; if it is false, ``default`` itself. Raises ``ConfigError`` if both are given.
    """
    if reporter is not None and progress:
        raise ConfigError("progress = True, but reporter is given, which receives the progress: give one of them.")
    bar = NotebookBar if in_notebook() else TerminalBar if draws_in_place(sys.stdout) else None
    if reporter is not None or progress is False or not (progress or bar):
        yield reporter or default
        return
    with contextlib.closing(kind(console_on(sys.stdout, default.warned), bar, default.warned)) as shown:
        yield shown
