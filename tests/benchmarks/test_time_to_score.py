"""The table of times to a published score."""

import argparse
import os

import pytest

import time_to_score
from suite_tasks import Task


def test_table_states_what_was_extrapolated_and_what_was_not_reached(monkeypatch):
    name = "CartPole-v1, 61k steps"
    rows = {str(seed): {"score": score} for seed, score in enumerate((500.0, 499.5))}
    monkeypatch.setattr(time_to_score, "read_results", lambda path: {"tasks": {name: {"seeds": rows}}})
    first, following = ({"steps": 61_440, "wall_seconds": seconds, "return_mean": 500.0} for seconds in (20.0, 8.0))
    peer = {"wall_seconds": 150.0, "steps": 100_000}
    measured = {"first": first, "next": following, "sb3": peer, "sb3_share": 0.1, "ratio": 7.5}
    reached = "| 1 of 2 | 499.5 | 0:20 | 500 | 0:08 | 2:30 (extrapolated), 100,000 steps | 7.5 |"
    assert reached in time_to_score.table({"tasks": {name: measured}})
    failed = time_to_score.table({"tasks": {name: {**measured, "first": {**first, "return_mean": 490.0}}}})
    assert "| 499.5 | not reached after 0:20 | 490 | 0:08 | 2:30 (extrapolated), 100,000 steps | – |" in failed


def test_faster_number_of_threads_of_the_peer_counts(monkeypatch, tmp_path):
    python = tmp_path / "python"  # $4: threads, $6: share
    python.write_text("#!/bin/sh\necho '{\"wall_seconds\": '$((100 / $4))', \"share\": '$6'}'\n")
    python.chmod(0o755)
    starts = iter([{"wall_seconds": 5.0}, {"wall_seconds": 2.0}])
    monkeypatch.setattr(time_to_score, "ours", lambda *_: next(starts))
    given = argparse.Namespace(sb3_python=str(python), whole=["b"], share=0.1, threads=[1, 2])
    row = time_to_score.measure("a, short", Task("a"), given)
    assert row["sb3"] == {"wall_seconds": 50, "share": 0.1}
    assert row["ratio"] == 10.0


def test_failed_training_ends_with_its_error(tmp_path):
    with pytest.raises(SystemExit, match=r"train CartPole-v7 .* failed:\n(.|\n)*CartPole-v7"):
        time_to_score.ours(Task("CartPole-v7"), str(tmp_path), dict(os.environ))
