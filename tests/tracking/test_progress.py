"""What a person sees of a training: a bar on a terminal and in a notebook, lines elsewhere, nothing if it is to be quiet."""

import contextlib
import io
import os
import pty
import re
import sys
import threading
import types
from functools import partial

import pytest
from rich.console import Console

from proximo.cli.reporters import open_reporter
from proximo.config import Config, override
from proximo.errors import ConfigError
from proximo.tracking import progress
from proximo.tracking.progress import (
    NO_SCREEN,
    LastingStream,
    NotebookBar,
    TerminalBar,
    TrainingProgress,
    number,
    showing_progress,
)
from proximo.tracking.reporter import Reporter

CONFIG = override(Config(), {"num_envs": 4, "num_steps": 8, "total_steps": 3200})
ERASE, COLOR = "\x1b[2K", re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")
LOST = "the output cannot be written ({}), so nothing more is shown. The work continues; Ctrl-C stops it."
ODD = "[red]odd[/red] 3"


class Warned(Reporter):
    def __init__(self):
        self.messages = []
        self.warned = self.messages.append


@pytest.fixture(autouse=True)
def bare_screen(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", *NO_SCREEN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is set."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def started(reporter):
    reporter.started(CONFIG, [], {})
    reporter.seeds_started([], 0)
    return reporter


def events(reporter, fails=False):
    """The events of a training."""
    started(reporter).compiling()
    reporter.compiled("")
    reporter.advanced(1600, 800.0, 0.25)
    reporter.warned(ODD)
    if fails:
        raise ZeroDivisionError
    reporter.evaluating()
    reporter.evaluated(1600, [{"return_mean": 0.5}])
    reporter.stopped("A callback has stopped one of several seeds.")
    reporter.advanced(3200, 800.0, 0.75)
    reporter.finished([])


def trained(progress, reporter=None):
    """The bar that showed a training, if anything did, and the warnings that Python code received."""
    default = Warned()
    with showing_progress(reporter, progress, default) as shown:
        events(shown)
    assert (shown is reporter) == (reporter is not None)
    return type(shown.bar) if isinstance(shown, TrainingProgress) else "nothing", default.messages


def test_notebook_updates_one_output(monkeypatch):
    shown = []

    def display(content, raw=True):
        shown.append(content)
        return types.SimpleNamespace(update=display)

    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(progress, "display", display)
    assert trained(None)[0] is NotebookBar
    assert "<progress></progress> <code>compiling… 0:00</code>" in [content["text/html"] for content in shown]
    assert shown[-1]["text/html"].startswith('<progress value="1.0000"></progress> <code>3,200 (100%) · return 0.750')
    assert shown[-1]["text/plain"].startswith("3,200 (100%) · return 0.750 · eval 0.500")


def test_python_shows_progress_only_where_a_person_looks_or_asks(monkeypatch, capsys):
    with pytest.warns(UserWarning, match="odd"):
        events(Reporter())
    assert trained(None)[0] == "nothing"
    assert capsys.readouterr() == ("", "")
    assert trained(True)[0] is type(None)
    assert capsys.readouterr().out.startswith("compiling…\ncompiled in 0.0 s\n")
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", terminal)
    assert trained(False)[0] == "nothing"
    reporter = Warned()
    trained(None, reporter)
    assert (reporter.messages, terminal.getvalue()) == ([ODD], "")
    with pytest.raises(ConfigError, match="progress = True, but reporter is given"):
        trained(True, reporter)


def test_a_line_every_ten_seconds_and_the_first_compilation(clock):
    stream = io.StringIO()
    reporter = started(TrainingProgress(Console(file=stream, soft_wrap=True)))
    for seconds in (4.2, 9.0):
        reporter.compiling()
        clock[0] += seconds
        reporter.compiled("")
    for second in range(1, 36):
        clock[0] += 1
        reporter.advanced(32 * second, 32.0, 5.0 + second)
        if second == 15:
            reporter.evaluated(32 * second, [{"return_mean": 12.34}, {"return_mean": 10.0}])
    reporter.stopping()
    assert stream.getvalue().splitlines() == [
        "compiling…",
        "compiled in 4.2 s",
        "352 (11%) · return 16.0 · eval – · 32 steps/s · 1:29 left",
        "672 (21%) · return 26.0 · eval 11.2 · 32 steps/s · 1:19 left",
        "992 (31%) · return 36.0 · eval 11.2 · 32 steps/s · 1:09 left",
        "stopping after the current update (press Ctrl-C again to stop at once)",
    ]


def test_bar_fits_into_80_columns_and_clears_itself(clock):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, height=24, soft_wrap=True, color_system=None, _environ={})
    with contextlib.closing(started(TrainingProgress(console, partial(TerminalBar, transient=True)))) as reporter:
        reporter.compiling()
        clock[0] += 72
        reporter.update()
        reporter.advanced(1600, 100.0, 21.5)
        reporter.evaluating()
        clock[0] += 8
        reporter.evaluated(1600, [{"return_mean": 12.34}])
        reporter.advanced(1632, 100.0, 21.5)
        reporter.stopping()
    drawn = re.split(r"\x1b\[2K|\r", re.sub(r"\x1b\[\?25[lh]", "", stream.getvalue()))
    bars = [line.rstrip("\n") for line in drawn if "━" in line or "╺" in line]
    for start, end in (
        ("compiling… 1:12 ━", ""),
        ("evaluating… 0:00 ━", "1,600 (50%) · return 21.5 · 0:16 left"),
        (" ━", "1,632 (51%) · return 21.5 · eval 12.3 · 100 steps/s · 0:23 left"),
        ("stopping… 0:00 ━", "left"),
    ):
        assert any(bar.startswith(start) and bar.rstrip().endswith(end) for bar in bars), (start, end, bars)
    assert max(map(len, bars)) <= 80
    assert "━" not in drawn[-1], "it is erased at the end"


@pytest.mark.parametrize(("together", "speed", "left", "group"), [(1, 100.0, "0:48 left", "seed-1"), (3, 300.0, "0:16 left", "")])
def test_speed_and_time_left_are_for_all_seeds(tmp_path, together, speed, left, group):
    seeds = [tmp_path / f"seed-{i}" for i in range(3)]
    reporter = TrainingProgress(Console(), quiet=True)
    reporter.started(CONFIG, seeds, {})
    for first in range(0, 4 - together, together)[:2]:
        reporter.seeds_started(seeds[first : first + together], 0)
    reporter.advanced(1600, speed, None)
    assert reporter.figures.endswith(f"1,600 (50%) · return – · eval – · {speed:.0f} steps/s · {left}")
    assert reporter.activity == group


def test_small_returns_have_enough_digits():
    values = {
        None: "–", 0.0: "0.00", 0.9531: "0.953", -0.00021: "-0.00021", -9.8765: "-9.88", 9.999: "10.0", -1234.5: "-1,234.5", 12345.6: "12,346",
    }  # fmt: skip
    assert {value: number(value) for value in values} == values


@contextlib.contextmanager
def output(monkeypatch, terminal):
    """A pipe or a terminal as standard output, and the file descriptor that reads it."""
    reading, writing = pty.openpty() if terminal else os.pipe()
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        yield reading


@pytest.mark.parametrize(
    ("bar", "terminal", "environment", "colored"),
    [
        (TerminalBar, True, {}, True), (TerminalBar, True, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (TerminalBar, True, {"NO_COLOR": "", "CI": "false"}, True), (type(None), True, {"CI": "true"}, True),
        (type(None), True, {"TERM": "dumb"}, False), (type(None), False, {}, False), (type(None), False, {"FORCE_COLOR": "1"}, True),
    ],
)  # fmt: skip
def test_terminals_get_a_bar_that_a_failure_erases_and_pipes_lines(monkeypatch, bar, terminal, environment, colored):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    pieces: list[bytes] = []

    def read(file):
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(file, 1 << 16):
                pieces.append(piece)

    with output(monkeypatch, terminal) as reading:
        reader = threading.Thread(target=read, args=(reading,))
        reader.start()  # at once: a full pipe blocks its writer
        with contextlib.suppress(ZeroDivisionError), open_reporter(TrainingProgress) as reporter:
            events(reporter, fails=bar is TerminalBar)
    reader.join(30)
    os.close(reading)
    text = b"".join(pieces).decode()
    assert type(reporter.bar) is bar
    assert bool(COLOR.search(text)) == colored
    assert ODD in text, "brackets are no markup"
    if bar is TerminalBar:
        assert text.rstrip().endswith(ERASE)
        assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor is shown again"
    else:
        assert not re.search(r"\x1b\[[0-9?]*[A-KJhl]", text), "no cursor is moved, nothing is erased"
        assert len(text.splitlines()) == 4, "compiling, compiled, warning, stopped"


@pytest.mark.parametrize(("terminal", "reason"), [(False, "Broken pipe"), (True, "Input/output error")])
def test_output_that_is_gone_is_one_warning_and_ends_nothing(monkeypatch, capsys, terminal, reason):
    with output(monkeypatch, terminal) as reading, open_reporter(TrainingProgress) as reporter:
        os.close(reading)
        events(reporter)
    assert capsys.readouterr().err == f"warning: {LOST.format(reason)}\n"
    default = Warned()
    with output(monkeypatch, terminal) as reading, showing_progress(None, True, default) as reporter:
        os.close(reading)
        events(reporter)
    assert sorted(default.messages) == [ODD, LOST.format(reason)]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")
def test_full_disk_is_one_warning():
    warnings = []
    with contextlib.suppress(OSError), open("/dev/full", "w") as file:  # what it still has is lost when it is closed
        stream = LastingStream(file, warnings.append)
        for _ in range(3):
            print("lost", file=stream, flush=True)
        assert os.readlink(f"/proc/self/fd/{file.fileno()}") == "/dev/full", "later text may be written again"
    sentence = LOST.format("No space left on device").replace("nothing more is shown", "a part of it is lost")
    assert warnings == [sentence]


def test_quiet_prints_only_warnings_and_early_stops_on_stderr(capsys):
    with open_reporter(TrainingProgress, quiet=True) as reporter:
        events(reporter)
        reporter.stopping()
    assert capsys.readouterr() == ("", f"warning: {ODD}\nA callback has stopped one of several seeds.\n")
