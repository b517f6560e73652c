"""Sinks that ``track`` names: found before anything is compiled, apart from the training, whole after every resume."""

import importlib.util
import re
import sqlite3
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest

from commands import SMALL, copied, rows, trained
from proximo.cli import main
from proximo.errors import ConfigError, EnvError
from proximo.run import tracking
from proximo.run.histograms import Histogram
from proximo.run.sinks import JsonLines, Sink, TrackedRun, read_rows
from proximo.run.tracking import Background, hold, names_in

TOTAL = SMALL["total_steps"]
DOCS = Path(__file__).parents[2] / "docs" / "tracking.md"


class Kept(Sink):
    """Keeps what it is given in the class, as a tracker elsewhere would."""

    rows, histograms, closed = [], [], 0

    def __init__(self, run):
        self.run = run

    def write(self, step, values):
        self.rows.append((step, dict(values)))

    def write_histograms(self, step, histograms):
        self.histograms.append((step, sorted(histograms)))

    def close(self):
        type(self).closed += 1


class Broken(Kept):
    def write(self, step, values):
        super().write(step, values)
        raise OSError("no route to host")


class NoBase:
    """All that a tracker needs."""

    rows = []  # noqa: RUF012

    def __init__(self, run):
        pass

    def write(self, step, values):
        self.rows.append(step)


@pytest.fixture(autouse=True)
def module(monkeypatch):
    """The classes above as a user's module."""
    made = types.ModuleType("own_sinks")
    made.Kept, made.Broken, made.NoBase, made.nothing = Kept, Broken, NoBase, 3
    for cls in (Kept, Broken, NoBase):
        cls.rows = []
    Kept.histograms, Kept.closed = [], 0
    monkeypatch.setitem(sys.modules, "own_sinks", made)


def opened(run_dir, make=Kept, resumed_at=None, told=None):
    told = [] if told is None else told
    return Background("own_sinks:Kept", make, TrackedRun(run_dir, {}, resumed_at, told.append))


@pytest.mark.parametrize(("track", "names"), [("none", []), ("", []), ("csv", ["csv"]), (" csv , a.b:C", ["csv", "a.b:C"])])
def test_names_are_read(track, names):
    assert names_in(track) == names


@pytest.mark.parametrize(
    ("track", "sentence"),
    [
        ("wandbb", r"track = 'wandbb': there is no 'wandbb' \(did you mean 'wandb'\?\); expected csv, wandb or my_package"),
        ("csv,csv", "names csv 2 times"),
        ("csv,none", "there is no 'none'"),
        ("nowhere.at_all:Sink", r"the module 'nowhere.at_all' cannot be imported \(ModuleNotFoundError: .*\). It must lie on Python's path"),
        ("own_sinks:Kep", r"expected a class with write\(step, values\) .* found nothing of that name \(did you mean 'Kept'\?\)"),
        ("own_sinks:nothing", "found 3"),
    ],
)  # fmt: skip
def test_a_sink_that_is_none_is_one_sentence(track, sentence):
    with pytest.raises(ConfigError, match=sentence):
        hold(track)


def test_a_missing_library_names_its_extra_before_anything_is_compiled(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvError, match=r"track = wandb needs a library that is not installed: pip install 'proximo\[wandb\]'"):
        hold("csv,wandb")
    monkeypatch.setattr("proximo.run.api.make_program", lambda *_: pytest.fail("went on"))
    assert main(["train", "toys:RandomEnds", "--track", "wandb", "--runs-dir", str(tmp_path / "runs")]) == 2
    assert "pip install 'proximo[wandb]'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_folder_named_wandb_is_no_library(monkeypatch, tmp_path):
    (tmp_path / "wandb").mkdir()
    real = importlib.util.find_spec
    spec = importlib.machinery.PathFinder.find_spec("wandb", [str(tmp_path)])
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: spec if name == "wandb" else real(name))
    with pytest.raises(EnvError, match="not installed"):
        hold("wandb")


def test_a_slow_sink_keeps_nobody_waiting_and_gets_everything(tmp_path):
    go = threading.Event()

    class Slow(Kept):
        def write(self, step, values):
            assert go.wait(30)
            super().write(step, values)

    sink = opened(tmp_path, Slow)
    for step in range(5):
        sink.write(step, {"a": 1.0})
    assert Kept.rows == []  # and this line was reached
    go.set()
    sink.close()
    assert [step for step, _ in Kept.rows] == list(range(5))
    assert Kept.closed == 0
    assert Slow.closed == 1


def test_a_sink_that_never_returns_is_left_behind_in_the_end(tmp_path):
    told, never = [], threading.Event()
    sink = opened(tmp_path, lambda run: never.wait(60) and Kept(run), told=told)
    sink.patience = 0.05
    sink.write(1, {})
    sink.close()
    assert told == ["own_sinks:Kept has not taken everything within 0 s: the rest may be missing there."]
    never.set()


def test_sinks_that_take_their_time_in_the_end_take_it_together(tmp_path):
    closed = []

    class Late(Kept):
        def close(self):
            time.sleep(0.3)
            closed.append(self)

    sinks = [opened(tmp_path / str(i), Late) for i in range(5) if (tmp_path / str(i)).mkdir() is None]
    started = time.monotonic()
    for step in ("end", "close"):
        for sink in sinks:
            getattr(sink, step)()
    assert len(closed) == 5
    assert time.monotonic() - started < 1.4


def test_a_sink_that_fails_is_told_of_once_and_gets_nothing_more(tmp_path):
    told = []
    sink = opened(tmp_path, Broken, told=told)
    for step in range(3):
        sink.write(step, {"a": 1.0})
        sink.flush()
    sink.close()
    assert told == ["own_sinks:Kept has failed (OSError: no route to host): it gets nothing more, the training goes on."]
    assert len(Broken.rows) == 1


def journal(run_dir, *steps):
    """Rows of a training: one at each step, and a second one, of an evaluation, at every tenth."""
    sink = JsonLines(run_dir / "metrics.jsonl", run_dir / "histograms.jsonl")
    for step in steps:
        for values in ({"a": step + 0.5}, {"eval/b": float("nan")})[: 2 if step % 10 == 0 else 1]:
            sink.write(step, values)
            yield step, values


def test_a_resume_gives_what_was_missed_and_leaves_out_what_was_written(tmp_path):
    first = opened(tmp_path)
    for step, values in journal(tmp_path, 5, 10, 15, 20):
        if (step, "eval/b" in values) != (20, True):  # killed before the last row had arrived
            first.write(step, values)
    first.close()
    assert [step for step, _ in Kept.rows] == [5, 10, 10, 15, 20]
    # From step 20 on: its evaluation is missing. Then from 10 on: 15 and 20 are written anew, and are there.
    opened(tmp_path, resumed_at=20).close()
    assert [step for step, _ in Kept.rows] == [5, 10, 10, 15, 20, 20]
    assert list(Kept.rows[-1][1]) == ["eval/b"]
    again = opened(tmp_path, resumed_at=10)
    for step, values in journal(tmp_path, 15, 20, 25):
        again.write(step, values)
    again.close()
    assert [step for step, _ in Kept.rows] == [5, 10, 10, 15, 20, 20, 25]


def test_one_that_joins_at_a_resume_is_given_all_until_then(tmp_path):
    list(journal(tmp_path, 5, 10, 15))
    made = {"histograms/x": Histogram.of(np.arange(3.0))}
    JsonLines(tmp_path / "metrics.jsonl", tmp_path / "histograms.jsonl").write_histograms(7, made)
    opened(tmp_path, resumed_at=10).close()
    assert [step for step, _ in Kept.rows] == [5, 10, 10]
    assert Kept.histograms == [(7, ["histograms/x"])]


def test_one_that_knows_its_rows_is_given_all_again(tmp_path):
    class Knows(Kept):
        knows_its_rows = True

    for resumed_at in (None, 10):
        list(journal(tmp_path, 5, 10) if resumed_at is None else ())
        sink = opened(tmp_path, Knows, resumed_at)
        sink.close()
    assert [step for step, _ in Kept.rows] == [5, 10, 10]
    opened(tmp_path, Knows, 10).close()
    assert [step for step, _ in Kept.rows] == [5, 10, 10] * 2


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small run whose second half is resumed with trackers that the first half had not."""
    return trained(tmp_path_factory.mktemp("tracked"), "r", track="csv", keep_checkpoints=50)


def test_a_training_writes_to_sinks_of_one_s_own_and_a_resume_writes_each_row_once(run, tmp_path):
    run_dir = copied(run, tmp_path)
    words = ["train", "--resume", f"{run_dir}@{TOTAL // 2}", "--track", "csv,own_sinks:Kept,own_sinks:NoBase,own_sinks:Broken"]
    assert main([*words, "--quiet"]) == 0
    assert rows(run_dir) == rows(run)
    written = [(row["step"], sorted(set(row) - {"step"})) for row in read_rows(run_dir / "metrics.jsonl")]
    assert [(step, sorted(values)) for step, values in Kept.rows] == written
    assert NoBase.rows == [step for step, _ in written]
    table = (run_dir / "metrics.csv").read_text().splitlines()
    assert len(table) == len(written) + 1
    assert len(Broken.rows) == 1


def test_the_example_of_the_docs_keeps_every_number(run, tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    lines = [line for line in code.splitlines() if line.strip() and '"""' not in line]
    assert len(lines) <= 12, "a dozen lines"
    (tmp_path / "my_tracker.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    run_dir = copied(run, tmp_path / "runs")
    assert main(["train", "--resume", f"{run_dir}@{TOTAL // 2}", "--track", "my_tracker:Sqlite", "--quiet"]) == 0
    with sqlite3.connect(run_dir / "metrics.db") as table:
        found = table.execute("select step, name, value from metrics").fetchall()
    wanted = [
        (row["step"], name, value)
        for row in read_rows(run_dir / "metrics.jsonl")
        for name, value in row.items()
        if name != "step"
    ]
    assert found == wanted
