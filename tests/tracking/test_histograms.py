"""Histograms: what they count, where they are written, and that they do not change a training."""

import json
import os
import signal
import time

import numpy as np
import pytest

from commands import BATCH, ended_at_once, final_state, rows, train_words, trained
from proximo.cli import main
from proximo.tracking.histograms import BINS, MAX_VALUES, Histogram, of_rows
from proximo.tracking.run_trackers import read_rows
from proximo.training import loop
from proximo.training.backends import JaxBackend

IN_PROCESS = {"num_workers": 0, "learner_lag": 1}
LONG = {"total_steps": 60 * BATCH, "eval_episodes": 0}
NAMES = {"histograms/returns", "histograms/advantages", "histograms/ratios", "histograms/actions", "histograms/observations"}
OF_EPISODES = {"histograms/episode_returns", "histograms/episode_lengths"}
"""Only of updates in which an episode ends."""


def test_counts_and_sums_equal_those_of_numpy():
    x = np.random.default_rng(0).normal(size=1000)
    h = Histogram.of(x)
    counts, edges = np.histogram(x, BINS)
    np.testing.assert_array_equal(h.counts, counts)
    np.testing.assert_allclose(h.edges, edges)
    assert (h.counts.sum(), h.total, h.squares) == (1000, pytest.approx(x.sum()), pytest.approx((x**2).sum()))
    whole = Histogram.of(np.array([0, 2, 2, 5]))
    assert (whole.counts.tolist(), whole.low, whole.high) == ([1, 0, 2, 0, 0, 1], -0.5, 5.5)
    assert Histogram.of(np.array([np.nan, 1.0, np.inf])).counts.sum() == 1
    assert Histogram.of(np.array([np.nan])) is None
    for value in (0.0, 500.0, -1e30, 1e-30):
        equal = Histogram.of(np.full(7, value, np.float32))
        assert (equal.counts.sum(), equal.low < equal.high) == (7, True)
    large = Histogram.of(np.tile(np.arange(4, dtype=np.uint8), MAX_VALUES)).counts
    assert large.sum() <= MAX_VALUES
    assert large.min() > 0.9 * large.mean(), "they are sampled evenly"
    assert Histogram.from_json(json.loads(json.dumps(h.as_json()))).as_json() == h.as_json()


def test_invalid_transitions_are_ignored_and_parts_are_separate():
    valid = np.ones((4, 2), bool)
    valid[1] = False
    flat = {name: np.zeros((4, 2)) for name in ("returns", "advantages", "ratios")}
    observations = {"camera": np.zeros((4, 2, 3), np.uint8), "action_mask": np.ones((4, 2, 2)), "arm": (np.zeros((4, 2)),)}
    episodes = {f"episode_{name}": np.arange(8).reshape(4, 2) for name in ("returns", "lengths")}
    episodes["episode_ends"] = episodes["episode_lengths"] % 4 == 1
    made = of_rows({**flat, **episodes, "valid": valid, "actions": np.zeros((4, 2, 3)), "observations": observations})
    assert {name.removeprefix("histograms/") for name in made} == {
        "returns", "advantages", "ratios", "actions/0", "actions/1", "actions/2", "observations/camera", "observations/arm/0",
        "episode_returns", "episode_lengths",
    }  # fmt: skip
    assert made["histograms/returns"].counts.sum() == 6
    assert made["histograms/observations/camera"].counts.sum() == 18
    assert made["histograms/episode_returns"].total == made["histograms/episode_lengths"].total == 1 + 5


def members(run_dir):
    return sorted(run_dir.glob("seed-*")) or [run_dir]


@pytest.mark.parametrize("settings", [{"seeds": 2}, {"env": "gym_toys:Walk", **IN_PROCESS}])
def test_at_most_fifty_are_recorded_and_change_no_bit_of_a_training(settings, tmp_path):
    settings = {**LONG, **settings}
    runs = trained(tmp_path, "without", **settings), trained(tmp_path, "with", histograms="true", **settings)
    for without, run_dir in zip(*map(members, runs), strict=True):
        assert final_state(run_dir) == final_state(without)
        assert rows(run_dir) == rows(without)
        made = read_rows(run_dir / "histograms.jsonl")
        assert [row["step"] for row in made] == [2 * BATCH * (i + 1) for i in range(30)]
        assert all(set(row) - {"step"} - OF_EPISODES == NAMES for row in made)
        assert sum(set(row) >= OF_EPISODES for row in made) > 15
        last = {name: Histogram.from_json(value) for name, value in made[-1].items() if name != "step"}
        assert last["histograms/returns"].counts.sum() <= BATCH
        ratios = last["histograms/ratios"]
        assert 0.5 < ratios.total / ratios.counts.sum() < 2
        assert ratios.low < 1 < ratios.high
        assert ratios.high - ratios.low > 1e-4, "the policy has learned in between"
        assert not (without / "histograms.jsonl").exists()


def test_interrupted_inspection_loses_no_update(tmp_path, monkeypatch, capsys):
    """The first inspection compiles, which may take longer than an interrupted training waits."""
    monkeypatch.setattr(loop, "GRACE_SECONDS", 1.0)
    monkeypatch.setattr("os._exit", ended_at_once)
    real, asked = JaxBackend.inspect, []

    def slow(self, *states):
        if not asked:
            asked.append(True)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(3.0)
        return real(self, *states)

    monkeypatch.setattr(JaxBackend, "inspect", slow)
    words = train_words(tmp_path, "r", **{**LONG, "histograms": "true", "checkpoint_every": 10**6})
    with pytest.raises(SystemExit, match=str(128 + signal.SIGTERM)):
        main(words)
    assert f"Stopped at step {2 * BATCH}, saved." in capsys.readouterr().out
    assert asked
