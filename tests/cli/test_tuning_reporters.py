"""What a person sees of a study: a line for each trial on a terminal, only what is news elsewhere."""

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from proximo.cli import tuning_reporters as module
from proximo.cli.tuning_reporters import LineReporter, LiveReporter, QuietReporter, make_reporter, number
from proximo.config import Config, override
from proximo.tuning.journal import Record
from proximo.tuning.plan import StudyPlan
from proximo.tuning.space import read_space

BASE = override(Config(), {"id": "toys:RandomEnds", "total_steps": 3200, "seed": 100})
PLAN = StudyPlan(BASE, read_space({"gamma": [0.9, 0.99], "num_steps": [64, 128]}, BASE, "s", True), trials=10)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is set."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def printed(kind=LineReporter):
    stream = io.StringIO()
    return kind(Console(file=stream, soft_wrap=True, highlight=False, force_terminal=kind is LiveReporter)), stream


def trial(n, score, state="done", reason=""):
    return Record(n, {}, state, reason, {} if score is None else {"trial": [score]})


def test_banner_shows_the_search_space_and_the_seeds():
    reporter, stream = printed()
    reporter.started(Path("tune/e/s"), PLAN, [trial(0, 1.0)], {"num_steps"})
    assert stream.getvalue().splitlines() == [
        " environment  toys:RandomEnds",
        "      trials  10, 1 of them finished, of 3,200 steps each, seeds 100–101, 8 in one program",
        "    searched  gamma",
        "  by program  num_steps",
        "       study  tune/e/s",
    ]


def test_pipe_gets_lines_for_new_bests_and_every_ten_seconds(clock):
    reporter, stream = printed()
    reporter.started(Path("s"), PLAN, [], set())
    stream.truncate(0), stream.seek(0)
    base, better = trial(0, 1.0), trial(1, 2.5)
    reporter.finished(base, base, 70.0)
    reporter.finished(better, better, 65.0)
    reporter.finished(trial(2, 1.5), better, 60.0)
    clock[0] += 11
    reporter.finished(trial(3, 0.5, "pruned"), better, 50.0)
    reporter.finished(trial(4, None, "failed", "NaN"), better, 50.0)
    assert stream.getvalue().splitlines() == [
        "base       1 · best 1 (base) · 1 of 10 finished · 1:10 left",
        "trial 1    2.5 · best 2.5 (trial 1) · 2 of 10 finished · 1:05 left",
        "trial 3    0.5 pruned · best 2.5 (trial 1) · 4 of 10 finished · 0:50 left",
    ]


def test_terminal_gets_a_line_per_trial_and_the_batch_status():
    reporter, stream = printed(LiveReporter)
    with reporter:
        reporter.started(Path("s"), PLAN, [], set())
        reporter.batch([0, 1, 2], {"num_steps": 64})
        assert "trials 0–2 (num_steps 64): compiling…" in reporter.display().plain
        reporter.advanced(0.25)
        assert reporter.display().plain.endswith(": 25%")
        base = trial(0, 1.0)
        for n in range(3):
            reporter.finished(trial(n, 0.5), base, 10.0)
        reporter.final_round(base, "final", 16)
    assert stream.getvalue().count("best 1 (base)") == 3
    assert "final round: the base on 16 other seeds" in stream.getvalue()


def test_quiet_is_silent_but_for_warnings_on_stderr(capsys):
    with make_reporter(sys.stdout, quiet=True) as reporter:
        assert type(reporter) is QuietReporter
        reporter.started(Path("s"), PLAN, [], set())
        reporter.finished(trial(0, 1.0), None, 0.0)
        reporter.warned("odd")
    assert capsys.readouterr() == ("", "warning: odd\n")


@pytest.mark.parametrize(("score", "text"), [(None, "–"), (0.98765, "0.9877"), (-83.256, "-83.26"), (12345.6, "12,346")])
def test_scores_have_four_digits(score, text):
    assert number(score) == text
