"""Python shows the progress of a training where a person looks: on a terminal, in a notebook, or if asked."""

import contextlib
import io
import os
import pty
import re
import sys

import pytest

from proximo.config import Config, override
from proximo.errors import ConfigError
from proximo.tracking import progress_displays as module
from proximo.tracking.progress_displays import NO_SCREEN, ProgressBar, ProgressLines, showing_progress
from proximo.tracking.reporter import Reporter

CONFIG = override(Config(), {"num_envs": 4, "num_steps": 8, "total_steps": 3200})


class Warned(Reporter):
    def __init__(self):
        self.messages = []

    def warned(self, message):
        self.messages.append(message)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Cell:
    """The output of a notebook's cell: what each display and update has shown."""

    def __init__(self):
        self.shown = []

    def display(self, content):
        self.shown.append(content)
        return self

    def update(self, content, raw):
        assert raw
        self.shown.append(content)


@pytest.fixture(autouse=True)
def bare_screen(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", *NO_SCREEN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def trained(progress, reporter=None):
    """The events of a training, and the kind of the reporter that has received them."""
    warned = Warned()
    with showing_progress(reporter, progress, warned) as shown:
        shown.started(CONFIG, [], {})
        shown.seeds_started([], 0)
        shown.compiling()
        shown.compiled("")
        shown.advanced(1600, 800.0, 0.25)
        shown.warned("odd")
        shown.evaluating()
        shown.evaluated(1600, [{"return_mean": 0.5}])
        shown.stopped("A callback has stopped one of several seeds.")
        shown.advanced(3200, 800.0, 0.75)
    assert warned.messages == (["odd"] if reporter is None else [])
    return shown


def test_terminal_shows_a_bar_whose_last_state_remains(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert isinstance(trained(None), ProgressBar)
    text = sys.stdout.getvalue()
    assert "compiling…" in text
    last = [re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", line) for line in text.splitlines()][-2]
    assert "━━━━" in last
    assert "3,200 (100%) · return 0.750 · eval 0.500 · 800 steps/s · 0:00 left" in last


def test_notebook_updates_one_output(monkeypatch):
    cell = Cell()
    monkeypatch.setattr(module, "in_notebook", lambda: True)
    monkeypatch.setattr(module, "display", cell.display)
    trained(None)
    assert "<progress></progress> <code>compiling… 0:00</code>" in [content["text/html"] for content in cell.shown]
    assert cell.shown[-1]["text/html"].startswith(
        '<progress value="3200" max="3200"></progress> <code>3,200 (100%) · return 0.750'
    )
    assert cell.shown[-1]["text/plain"].startswith("3,200 (100%) · return 0.750 · eval 0.500")


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_of_false_shows_nothing(monkeypatch, capsys, terminal):
    if terminal:
        monkeypatch.setattr(sys, "stdout", Terminal())
        assert isinstance(trained(False), Warned)
        assert sys.stdout.getvalue() == ""
    else:
        assert isinstance(trained(None), Warned), "by default only a terminal or a notebook shows progress"
        assert capsys.readouterr() == ("", "")


def test_progress_of_true_prints_lines_without_a_terminal(capsys):
    assert isinstance(trained(True), ProgressLines)
    assert capsys.readouterr().out.startswith("compiling…\ncompiled in 0.0 s\n")


@pytest.mark.parametrize("terminal", [True, False])
def test_output_that_is_gone_is_one_warning_and_ends_nothing(monkeypatch, terminal):
    reading, writing = pty.openpty() if terminal else os.pipe()
    warned = Warned()
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with showing_progress(None, True, warned) as shown:
            assert isinstance(shown, ProgressBar if terminal else ProgressLines)
            os.close(reading)
            shown.started(CONFIG, [], {})
            shown.compiling()
            shown.compiled("")
            shown.advanced(3200, 800.0, 0.75)
    assert [message.partition(" (")[0] for message in warned.messages] == ["the output cannot be written"]


@pytest.mark.parametrize(
    ("progress", "reporter", "message"),
    [(True, Reporter(), "progress = True, but reporter is given"), (2, None, "progress = 2: expected True, False, or None")],
)
def test_contradicting_arguments_raise(progress, reporter, message):
    with pytest.raises(ConfigError, match=message):
        trained(progress, reporter)


def test_given_reporter_replaces_the_bar(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    reporter = Warned()
    assert trained(None, reporter) is reporter
    assert (reporter.messages, sys.stdout.getvalue()) == (["odd"], "")


def test_failed_training_restores_the_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    with contextlib.suppress(ZeroDivisionError), showing_progress(None, None, Reporter()) as shown:
        shown.started(CONFIG, [], {})
        raise ZeroDivisionError
    text = sys.stdout.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor is hidden and shown again"
