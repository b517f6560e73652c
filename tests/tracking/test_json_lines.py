"""JSON lines: no row is written twice, or lost by a crash; the lines are strict JSON."""

import json
import os

import numpy as np
import pytest

from proximo.errors import CheckpointError
from proximo.tracking.json_lines import JsonLines, read_rows, truncate_after


def write(path, *steps):
    tracker = JsonLines(path)
    for step in steps:
        tracker.write(step, {"train/loss": step / 10})
    tracker.close()


def strict(line):
    """Parse as a reader that knows no NaN would."""
    return json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_nan_and_infinity_become_null(tmp_path):
    path = tmp_path / "metrics.jsonl"
    tracker = JsonLines(path)
    tracker.write(5, {"a": float("nan"), "b": np.float32("inf"), "c": np.float32(0.5), "d": -0.0})
    tracker.close()
    assert strict(path.read_text()) == {"step": 5, "a": None, "b": None, "c": 0.5, "d": 0.0}


def test_incomplete_last_line_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, 1, 2)
    whole = path.read_bytes()
    second = whole.index(b"\n") + 1
    for end in range(second + 1, len(whole)):
        path.write_bytes(whole[:end])
        kept = [1, 2] if end == len(whole) - 1 else [1]  # it may lack only its line end
        assert [row["step"] for row in read_rows(path)] == kept
        write(path, 7)
        assert [row["step"] for row in read_rows(path)] == [*kept, 7]


def test_truncation_drops_only_rows_after_the_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, 10, 20, 20, 30, 40)
    first = path.read_bytes().splitlines()[:3]
    path.write_bytes(path.read_bytes() + b'{"step": 5')
    truncate_after(path, 20)
    assert path.read_bytes().splitlines() == first
    truncate_after(path, 0)
    assert read_rows(path) == []


@pytest.mark.parametrize("line", ["{broken", "[1]", '{"loss": 1}', "\x00\x00"])
def test_damage_before_the_last_line_raises(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    with pytest.raises(CheckpointError, match=r"metrics.jsonl is damaged: line 2 is not a row of metrics"):
        read_rows(path)


def test_flush_syncs_rows_and_creates_no_empty_files(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file)))
    tracker = JsonLines(tmp_path / "metrics.jsonl")
    tracker.write(1, {"a": 1.0})
    tracker.flush()
    assert synced == [str(tmp_path / "metrics.jsonl"), str(tmp_path)]
    assert not (tmp_path / "histograms.jsonl").exists()
