"""JSON lines: no row is written twice, or lost by a crash; the lines are strict JSON."""

import json
import os

import numpy as np
import pytest

from proximo.errors import CheckpointError
from proximo.tracking.run_trackers import RunTrackers, read_rows, truncate_after
from proximo.tracking.tracker import TrackedRun


def opened(run_dir):
    return RunTrackers(TrackedRun(run_dir, {}), "", tensorboard=False)


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


def test_incomplete_last_line_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, 1, 2)
    whole = path.read_bytes()
    for end in range(whole.index(b"\n") + 2, len(whole)):
        path.write_bytes(whole[:end])
        kept = [1, 2] if end == len(whole) - 1 else [1]  # it may lack only its line end
        assert steps(path) == kept
        write(path, 7)
        assert steps(path) == [*kept, 7]


def test_truncation_drops_only_rows_after_the_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, 10, 20, 20, 30, 40)
    first = path.read_bytes().splitlines()[:3]
    path.write_bytes(path.read_bytes() + b'{"step": 5')
    truncate_after(path, 20)
    assert path.read_bytes().splitlines() == first
    truncate_after(path, 0)
    assert steps(path) == []


@pytest.mark.parametrize("line", ["{broken", "[1]", '{"loss": 1}', "\x00\x00"])
def test_damage_before_the_last_line_raises(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    with pytest.raises(CheckpointError, match=r"metrics.jsonl is damaged: line 2 is not a row of metrics"):
        read_rows(path)
