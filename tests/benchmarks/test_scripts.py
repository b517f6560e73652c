"""``benchmarks/time_to_score.py``, ``earlier_seeds.py`` and ``zoo.py``: tables, earlier trainings, and cards of the zoo."""

import argparse
import json
import os

import pytest

import earlier_seeds
import time_to_score
import zoo
from suite_tasks import Task

PUBLISHED = """# PPO

## Results

Files: `policy.safetensors`, `metrics.jsonl` the learning curves.

## Use

    proximo pull somewhere

## Training

Trained on cpu.
"""


def test_card_has_the_commands_of_the_zoo_and_the_origin():
    text = zoo.card(PUBLISHED, "zoo:Toy", 1_000_003, {"levels": "held_out"}, {"seed-3": 10.0, "seed-4": 9.5})
    assert "learning curves" not in text
    assert "proximo pull somewhere" not in text
    assert "proximo eval zoo:Toy --seed 1000003 --env-settings levels=held_out" in text
    assert "seed-3: 10.00, seed-4: 9.50. The run with the highest one was taken" in text
    assert text.endswith("made the folder.\n\nTrained on cpu.\n")
    with pytest.raises(SystemExit, match="matches 0 times"):
        zoo.card(PUBLISHED.replace("## Training", "## The training"), "zoo:Toy", 0, {}, {"seed-3": 10.0})


def content(gamma, *seeds):
    """A results file: each seed is (number, score, date)."""
    records = {str(number): {"score": score, "date": date} for number, score, date in seeds}
    return {"suite": "s", "tasks": {"T-v1": {"settings": {"ppo": {"gamma": gamma}}, "steps": 10, "seeds": records}}}


def test_earlier_trainings_are_grouped_by_settings_and_a_retraining_is_a_group_of_its_own(monkeypatch, tmp_path):
    history = [
        ("a", content(0.9, (0, 1.0, "day 1"))),
        ("b", content(0.9, (0, 1.0, "day 1"), (1, 2.0, "day 2"))),
        ("c", content(0.9, (0, 5.0, "day 3"))),  # the code has changed
        ("d", content(0.8, (0, 6.0, "day 4"))),
        ("e", content(0.8, (0, 7.0, "day 5"))),
    ]
    path = tmp_path / "results" / "suite_s.json"
    path.parent.mkdir()
    path.write_text(json.dumps(history[-1][1]))
    suite = tmp_path / "suites" / "s.yaml"
    suite.parent.mkdir()
    suite.write_text("{title: S, tasks: {T-v1: {}, CartPole-v1: {preset: false, settings: {gamma: 0.7}}}}")
    monkeypatch.setattr(earlier_seeds, "versions", lambda _: iter(history))
    groups = earlier_seeds.earlier(path)
    assert [(g["settings"], {s: r["score"] for s, r in g["seeds"].items()}) for g in groups] == [
        ({"gamma": 0.9}, {"0": 1.0, "1": 2.0}),
        ({"gamma": 0.9}, {"0": 5.0}),
        ({}, {"0": 6.0}),
    ]
    present = earlier_seeds.present(path)["CartPole-v1"]
    assert (present["settings"]["ppo"]["gamma"], present["seeds"]) == (0.7, {}), (
        "compared with today's settings, though not trained"
    )


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
    row = time_to_score.measure("a, short", Task("a"), 20, given)
    assert row["sb3"] == {"wall_seconds": 50, "share": 0.1}
    assert row["ratio"] == 10.0


def test_failed_training_ends_with_its_error(tmp_path):
    with pytest.raises(SystemExit, match=r"train CartPole-v7 .* failed:\n(.|\n)*CartPole-v7"):
        time_to_score.ours(Task("CartPole-v7"), 0, str(tmp_path), dict(os.environ))
