"""Rows of a run: strict JSON, each written once, whatever a crash, a full disk or a slow or failing tracker does."""

import json
import os
import re
import sqlite3
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from test_tensorboard import events

from commands import SMALL, copied, rows, trained
from proximo.cli import main
from proximo.errors import CheckpointError, ConfigError, EnvError
from proximo.storage import atomic_files
from proximo.threads import together
from proximo.tracking import run_trackers
from proximo.tracking.csv_table import CsvTable
from proximo.tracking.histograms import Histogram
from proximo.tracking.run_trackers import RunTrackers, check_trackers, read_rows, truncate_after
from proximo.tracking.tracker import TrackedRun, Tracker

TOTAL = SMALL["total_steps"]
DOCS = Path(__file__).parents[2] / "docs" / "tracking.md"


class Kept(Tracker):
    """Keeps what it is given in the class, as a tracker elsewhere would."""

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

    def __init__(self, run):
        pass

    def write(self, step, values):
        self.rows.append(step)


nothing, here = 3, sys.modules[__name__]
"""This is the user's module, too."""


@pytest.fixture(autouse=True)
def forgotten():
    for cls in (Kept, Broken, NoBase):
        cls.rows = []
    Kept.closed = 0


def opened(run_dir, track="", told=None):
    return RunTrackers(TrackedRun(run_dir, {}, None, ([] if told is None else told).append), track, tensorboard=False)


def write(path, *steps):
    trackers = opened(path.parent)
    for step in steps:
        trackers.write(step, {"train/loss": step / 10})
    trackers.close()


def steps(path):
    return [row["step"] for row in read_rows(path)]


def test_rows_are_strict_json_and_a_flush_syncs_them_without_empty_files(tmp_path, monkeypatch):
    synced, fsync, path = [], os.fsync, tmp_path / "metrics.jsonl"
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file)))
    trackers = opened(tmp_path)
    trackers.write(5, {"a": float("nan"), "b": np.float32("inf"), "c": np.float32(0.5), "d": -0.0})
    trackers.flush()
    row = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert row == {"step": 5, "a": None, "b": None, "c": 0.5, "d": 0.0}
    assert synced == [str(path), str(tmp_path)]
    assert not (tmp_path / "histograms.jsonl").exists()


def test_incomplete_last_line_is_dropped_and_a_truncation_drops_only_later_rows(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, 1, 2)
    whole = path.read_bytes()
    for end in range(whole.index(b"\n") + 2, len(whole)):
        path.write_bytes(whole[:end])
        kept = [1, 2] if end == len(whole) - 1 else [1]  # it may lack only its line end
        assert steps(path) == kept
        write(path, 7)
        assert steps(path) == [*kept, 7]
    write(path, 7, 30)
    lines = path.read_bytes().splitlines()
    path.write_bytes(path.read_bytes() + b'{"step": 5')
    truncate_after(path, 7)
    assert path.read_bytes().splitlines() == lines[:-1]
    truncate_after(path, 0)
    assert steps(path) == []


@pytest.mark.parametrize("line", ["{broken", "[1]", '{"loss": 1}', "\x00\x00"])
def test_damage_before_the_last_line_raises(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    with pytest.raises(CheckpointError, match=r"metrics.jsonl is damaged: line 2 is not a row of metrics"):
        read_rows(path)


def test_columns_of_csv_are_completed_also_after_a_write_that_failed(tmp_path, monkeypatch):
    warnings = []
    table = CsvTable(TrackedRun(tmp_path, {}, None, warnings.append))
    table.write(10, {"a": 0.1, "=1+1": float("nan")})
    table.write(20, {"a": float("inf"), "c": 3.0})
    table.write(20, {"b": 4.0})

    def locked(path, *rest, **options):
        if "metrics.csv" in str(path):
            raise PermissionError(13, "Permission denied")
        return open(path, *rest, **options)

    def write_while_locked(*steps):
        with monkeypatch.context() as patch:  # another program has it open, as on Windows
            patch.setattr(os, "replace", locked)
            patch.setattr(atomic_files, "open", locked, raising=False)
            for step in steps:
                table.write(step, {"a": 2.0})

    write_while_locked(30, 40)
    cannot = f"Cannot write {tmp_path / 'metrics.csv'} (Permission denied): it gets no new rows until it can be written."
    assert warnings == [cannot]
    for step in (50, 60):
        table.write(step, {"a": 3.0})
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 8, "it is complete again before it is closed"
    write_while_locked(70)
    table.close()
    assert (tmp_path / "metrics.csv").read_text() == (
        "step,a,'=1+1,c,b\n10,0.1,,,\n20,,,3.0,\n20,,,,4.0\n30,2.0,,,\n40,2.0,,,\n50,3.0,,,\n60,3.0,,,\n70,2.0,,,\n"
    ), "a name is no formula"


@pytest.mark.parametrize(
    ("track", "sentence"),
    [
        ("wandbb", r"track = 'wandbb': there is no tracker 'wandbb' \(did you mean 'wandb'\?\); expected csv, wandb or my_package"),
        ("csv,none", "there is no tracker 'none'"),
        ("nowhere.at_all:Tracker", r"there is no module 'nowhere.at_all'. It must be on Python's path or in the current folder"),
        ("raising_tracker:Tracker", r"'raising_tracker:Tracker': no screen"),
        ("test_run_trackers:Kep", r"test_run_trackers has no such name \(did you mean 'Kept'\?\)"),
        ("test_run_trackers:nothing", "found 3"),
    ],
)  # fmt: skip
def test_unknown_tracker_raises_with_its_cause(tmp_path, monkeypatch, track, sentence):
    (tmp_path / "raising_tracker.py").write_text("from proximo.errors import EnvError\nraise EnvError('no screen')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=sentence) as caught:
        check_trackers(track)
    assert isinstance(caught.value.__cause__, EnvError) == ("no screen" in sentence)


def test_missing_library_raises_before_anything_is_compiled(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
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

    monkeypatch.setattr(here, "Flushed", Flushed, raising=False)
    trackers = opened(tmp_path, "test_run_trackers:Flushed")
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


def test_trackers_that_never_return_are_abandoned_together(tmp_path, monkeypatch):
    told, never = [], threading.Event()
    stuck = type("Stuck", (Kept,), {"__init__": lambda self, run: never.wait(60)})
    monkeypatch.setattr(here, "Stuck", stuck, raising=False)
    seeds = [opened(tmp_path, "test_run_trackers:Stuck", told) for _ in range(3)]
    for trackers in seeds:
        trackers.patience = 0.4
    started = time.monotonic()
    together(*(trackers.close for trackers in seeds))
    assert time.monotonic() - started < 1.1
    late = "has not written everything within 0 s: the last rows may be missing in test_run_trackers:Stuck."
    assert told == 3 * [f"test_run_trackers:Stuck {late}"]
    never.set()


def test_trackers_beside_a_failing_one_receive_every_kind_of_earlier_row_after_a_resume(tmp_path):
    lines, h = opened(tmp_path), Histogram.of(np.arange(3.0))
    rows = {"a": 5.5}, {"histograms/x": h}, {"a": 1.0}, {"eval/b": float("nan")}, {"a": 2.0}
    for step, values in zip((5, 7, 10, 10, 15), rows, strict=True):
        lines.write(step, values)
    (tmp_path / "videos").mkdir()
    for name in ("10.mp4", "20.mp4", ".10.5.mp4", "watch-seed0.mp4"):  # the last two: being encoded; of another command
        (tmp_path / "videos" / name).touch()
    told, tracks = [], "test_run_trackers:Broken,test_run_trackers:Kept,test_run_trackers:NoBase,csv"
    trackers = RunTrackers(TrackedRun(tmp_path, {}, 10, told.append), tracks, tensorboard=True)
    trackers.write(12, {"a": 3.0})
    trackers.close()
    failed = "test_run_trackers:Broken has failed (OSError: no route to host)"
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


def test_training_and_resume_write_each_row_once_to_every_tracker(tmp_path, monkeypatch):
    """The second half is resumed with trackers that the first half had not, the example of the docs among them."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "my_tracker.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    run = trained(tmp_path / "whole", "r", track="csv", keep_checkpoints=50)
    run_dir = copied(run, tmp_path / "runs")
    tracks = "csv,test_run_trackers:Kept,my_tracker:Sqlite"
    assert main(["train", "--resume", f"{run_dir}@{TOTAL // 2}", "--track", tracks, "--tensorboard", "--quiet"]) == 0
    assert rows(run_dir) == rows(run)
    written = [(row.pop("step"), row) for row in read_rows(run_dir / "metrics.jsonl")]
    stored = [(step, name, x) for step, row in written for name, x in row.items()]
    assert [(step, list(values)) for step, values in Kept.rows] == [(step, list(row)) for step, row in written]
    assert len((run_dir / "metrics.csv").read_text().splitlines()) == len(written) + 1
    scalars, purges = events(run_dir)
    wanted = {(step, name) for step, name, value in stored if value is not None}
    assert {(step, tag) for step, tag, _ in scalars if tag in {name for _, name in wanted}} == wanted
    assert purges == []
    with sqlite3.connect(run_dir / "metrics.db") as table:
        assert table.execute("select step, name, value from metrics").fetchall() == stored
