"""The table of times to a published score."""

import argparse
import os
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_table_states_what_was_extrapolated_and_the_worst_seed(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import time_to_score

    name = "CartPole-v1, 61k steps"
    rows = {str(seed): {"score": score} for seed, score in enumerate((500.0, 499.5))}
    monkeypatch.setattr(time_to_score, "read_results", lambda path: {"tasks": {name: {"seeds": rows}}})
    first, following = ({"steps": 61_440, "wall_seconds": seconds, "return_mean": 500.0} for seconds in (20.0, 8.0))
    peer = {"wall_seconds": 150.0, "steps": 100_000}
    measured = {"first": first, "next": following, "sb3": peer, "sb3_share": 0.1, "ratio": 7.5}
    text = time_to_score.table({"tasks": {name: measured}})
    assert (
        "| `CartPole-v1, 61k steps` | 500 | 61,440 | 1 of 2 | 499.5 | 0:20 | 500 | 0:08 | 2:30 (extrapolated), 100,000 steps | 7.5 |"
        in text
    )
    failed = time_to_score.table({"tasks": {name: {**measured, "first": {**measured["first"], "return_mean": 490.0}}}})
    assert "| 499.5 | not reached after 0:20 | 490 | 0:08 | 2:30 (extrapolated), 100,000 steps | – |" in failed
    assert "extrapolated" not in time_to_score.table({"tasks": {name: {**measured, "sb3_share": 1.0}}})


def test_faster_number_of_threads_of_the_peer_counts(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import time_to_score
    from suite_tasks import Task

    python = tmp_path / "python"
    python.write_text(
        """#!/bin/sh\necho '{"wall_seconds": '$((100 / $4))', "steps": 10, "share": '$6'}'\n"""
    )  # $4: threads, $6: share
    python.chmod(0o755)
    starts = iter([{"wall_seconds": 5.0}, {"wall_seconds": 2.0}])
    monkeypatch.setattr(time_to_score, "ours", lambda *_: next(starts))
    given = argparse.Namespace(sb3_python=str(python), whole=["b"], share=0.1, threads=[1, 2])
    row = time_to_score.measure("a, short", Task("a"), given)
    assert row == {
        "first": {"wall_seconds": 5.0},
        "next": {"wall_seconds": 2.0},
        "sb3": {"wall_seconds": 50, "steps": 10, "share": 0.1},
        "sb3_share": 0.1,
        "ratio": 10.0,
    }
    starts = iter([{"wall_seconds": 5.0}, {"wall_seconds": 2.0}])
    given.whole = ["a, short"]
    assert time_to_score.measure("a, short", Task("a"), given)["sb3"]["share"] == 1.0


def test_failed_training_ends_with_its_error(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import time_to_score
    from suite_tasks import Task

    with pytest.raises(SystemExit, match=r"train CartPole-v7 .* failed:\n(.|\n)*CartPole-v7"):
        time_to_score.ours(Task("CartPole-v7"), str(tmp_path), dict(os.environ))
