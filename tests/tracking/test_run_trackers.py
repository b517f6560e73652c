"""Trackers that ``track`` names: checked before anything is compiled, isolated from the training, complete after every resume."""

import re
import sqlite3
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest
from test_tensorboard import events

from commands import SMALL, copied, rows, trained
from proximo.cli import main
from proximo.errors import ConfigError, EnvError
from proximo.threads import together
from proximo.tracking import run_trackers
from proximo.tracking.histograms import Histogram
from proximo.tracking.run_trackers import RunTrackers, check_trackers, read_rows
from proximo.tracking.tracker import TrackedRun, Tracker

TOTAL = SMALL["total_steps"]
DOCS = Path(__file__).parents[2] / "docs" / "tracking.md"


class Kept(Tracker):
    """Keeps what it is given in the class, as a tracker elsewhere would."""

    rows, closed = [], 0

    def __init__(self, run):
        self.run = run

    def write(self, step, values):
        self.rows.append((step, dict(values)))

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
    made = types.ModuleType("custom_trackers")
    made.Kept, made.Broken, made.NoBase, made.nothing = Kept, Broken, NoBase, 3
    for cls in (Kept, Broken, NoBase):
        cls.rows = []
    Kept.closed = 0
    monkeypatch.setitem(sys.modules, "custom_trackers", made)


def opened(run_dir, track, told=None):
    return RunTrackers(TrackedRun(run_dir, {}, None, ([] if told is None else told).append), track, tensorboard=False)


@pytest.mark.parametrize(
    ("track", "sentence"),
    [
        ("wandbb", r"track = 'wandbb': there is no tracker 'wandbb' \(did you mean 'wandb'\?\); expected csv, wandb or my_package"),
        ("csv,none", "there is no tracker 'none'"),
        ("nowhere.at_all:Tracker", r"the module 'nowhere.at_all' cannot be imported \(ModuleNotFoundError: .*\). It must be on Python's path"),
        ("custom_trackers:Kep", r"expected a class with write\(step, values\) .* found nothing of that name \(did you mean 'Kept'\?\)"),
        ("custom_trackers:nothing", "found 3"),
    ],
)  # fmt: skip
def test_unknown_tracker_raises(track, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_trackers(track)


def test_an_error_of_proximo_in_an_imported_module_keeps_its_cause(tmp_path, monkeypatch):
    (tmp_path / "raising_tracker.py").write_text("from proximo.errors import EnvError\nraise EnvError('no screen')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"the module 'raising_tracker' cannot be imported \(EnvError: no screen\)") as caught:
        check_trackers("raising_tracker:Tracker")
    assert isinstance(caught.value.__cause__, EnvError)


def test_missing_library_raises_before_anything_is_compiled(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(run_trackers.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("proximo.training.api.make_backend", lambda *_: pytest.fail("went on"))
    assert main(["train", "gymnax:CartPole-v1", "--track", "csv,wandb", "--runs-dir", str(tmp_path / "runs")]) == 2
    sentence = "track = wandb needs a library that is not installed: pip install 'proximo[wandb]'"
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_slow_tracker_delays_neither_rows_nor_checkpoints_and_receives_everything(tmp_path, monkeypatch):
    go, flushed = threading.Event(), []

    class Flushed(Kept):
        def write(self, step, values):
            assert step < 3 or go.wait(30)
            super().write(step, values)

        def flush(self):
            flushed.append([step for step, _ in Kept.rows])

    sys.modules["custom_trackers"].Flushed = Flushed
    trackers = opened(tmp_path, "custom_trackers:Flushed")
    monkeypatch.setattr(run_trackers, "FLUSH_SECONDS", 30.0)
    for step in (1, 2):
        trackers.write(step, {"a": 1.0})
    trackers.flush()
    assert flushed == [[1, 2]]
    monkeypatch.setattr(run_trackers, "FLUSH_SECONDS", 0.3)
    trackers.write(3, {"a": 1.0})
    started = time.monotonic()
    for _ in range(20):
        trackers.flush()
    assert time.monotonic() - started < 2.0, "only the first one waited"
    assert len(Kept.rows) == 2
    go.set()
    trackers.close()
    assert flushed == [[1, 2], [1, 2, 3]]
    assert (Kept.closed, Flushed.closed) == (0, 1)


def test_trackers_that_never_return_are_abandoned_together(tmp_path):
    told, never = [], threading.Event()

    class Stuck(Kept):
        def __init__(self, run):
            never.wait(60)

    sys.modules["custom_trackers"].Stuck = Stuck
    seeds = [opened(tmp_path, "custom_trackers:Stuck", told) for _ in range(3)]
    started = time.monotonic()
    for trackers in seeds:
        trackers.patience = 0.4
    together(*(trackers.close for trackers in seeds))
    assert time.monotonic() - started < 1.1
    assert told == 3 * [
        "custom_trackers:Stuck has not written everything within 0 s: the last rows may be missing in custom_trackers:Stuck."
    ]
    never.set()


def test_trackers_beside_a_failing_one_receive_every_kind_of_earlier_row_after_a_resume(tmp_path):
    lines, h = opened(tmp_path, ""), Histogram.of(np.arange(3.0))
    rows = {"a": 5.5}, {"histograms/x": h}, {"a": 1.0}, {"eval/b": float("nan")}, {"a": 2.0}
    for step, values in zip((5, 7, 10, 10, 15), rows, strict=True):
        lines.write(step, values)
    (tmp_path / "videos").mkdir()
    for name in ("10.mp4", "20.mp4", ".10.5.mp4", "watch-seed0.mp4"):  # the last two: being encoded; of another command
        (tmp_path / "videos" / name).touch()
    told, tracks = [], "custom_trackers:Broken,custom_trackers:Kept,custom_trackers:NoBase,csv"
    trackers = RunTrackers(TrackedRun(tmp_path, {}, 10, told.append), tracks, tensorboard=True)
    trackers.write(12, {"a": 3.0})
    trackers.close()
    failed = "custom_trackers:Broken has failed (OSError: no route to host)"
    assert told == [f"{failed}: it receives no more rows, and the training continues."]
    assert (len(Broken.rows), NoBase.rows) == (1, [5, 7, 10, 10, 10, 12])
    steps = [(step, *values) for step, values in Kept.rows]
    assert steps == [(5, "a"), (7, "histograms/x"), (10, "a"), (10, "eval/b"), (10, "videos/episode"), (12, "a")]
    assert Kept.rows[1][1]["histograms/x"].as_json() == h.as_json()
    assert Kept.rows[4][1]["videos/episode"].path == tmp_path / "videos" / "10.mp4"
    assert (tmp_path / "metrics.csv").read_text() == "step,a,eval/b\n5,5.5,\n10,1.0,\n10,,\n12,3.0,\n"
    assert [(step, tag) for step, tag, _ in events(tmp_path)[0]] == [(5, "a"), (7, "histograms/x"), (10, "a"), (12, "a")]
    RunTrackers(TrackedRun(tmp_path, {}, 12), "", tensorboard=True).close()
    assert len(events(tmp_path)[0]) == 4, "its earlier file has the rows"


def stored(run_dir):
    """Every number of metrics.jsonl: step, name and value."""
    return [(row["step"], name, x) for row in read_rows(run_dir / "metrics.jsonl") for name, x in row.items() if name != "step"]


def test_training_and_resume_write_each_row_once_to_every_tracker(tmp_path, monkeypatch):
    """The second half is resumed with trackers that the first half had not, the example of the docs among them."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "my_tracker.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    run = trained(tmp_path / "whole", "r", track="csv", keep_checkpoints=50)
    run_dir = copied(run, tmp_path / "runs")
    tracks = "csv,custom_trackers:Kept,custom_trackers:NoBase,custom_trackers:Broken,my_tracker:Sqlite"
    assert main(["train", "--resume", f"{run_dir}@{TOTAL // 2}", "--track", tracks, "--tensorboard", "--quiet"]) == 0
    assert rows(run_dir) == rows(run)
    written = [(row["step"], sorted(set(row) - {"step"})) for row in read_rows(run_dir / "metrics.jsonl")]
    assert [(step, sorted(values)) for step, values in Kept.rows] == written
    assert NoBase.rows == [step for step, _ in written]
    assert len((run_dir / "metrics.csv").read_text().splitlines()) == len(written) + 1
    assert len(Broken.rows) == 1
    scalars, purges = events(run_dir)
    wanted = {(step, name) for step, name, value in stored(run_dir) if value is not None}
    assert {(step, tag) for step, tag, _ in scalars if tag in {name for _, name in wanted}} == wanted
    assert purges == []
    with sqlite3.connect(run_dir / "metrics.db") as table:
        assert table.execute("select step, name, value from metrics").fetchall() == stored(run_dir)
