"""Histograms: what they count, where they go, and that no bit of a training depends on them."""

import json
import os
import signal
import time

import jax.numpy as jnp
import numpy as np
import pytest

from commands import BATCH, copied, final_state, rows, train_words, trained
from proximo.cli import main
from proximo.run import checkpoint
from proximo.run.histograms import BINS, MOST_VALUES, Histogram, of_rows
from proximo.run.program import Program
from proximo.run.sinks import TensorBoard, read_rows
from proximo.run.training import LOOK_GRACE_SECONDS

LONG = {"total_steps": 120 * BATCH, "eval_episodes": 0}
NAMES = {"histograms/returns", "histograms/advantages", "histograms/ratios", "histograms/actions", "histograms/observations"}


def test_counts_are_numpy_s_and_the_sums_are_of_the_values():
    x = np.random.default_rng(0).normal(size=1000)
    h = Histogram.of(x)
    counts, edges = np.histogram(x, BINS)
    np.testing.assert_array_equal(h.counts, counts)
    np.testing.assert_allclose(h.edges, edges)
    assert (h.count, h.total, h.squares) == (1000, pytest.approx(x.sum()), pytest.approx((x**2).sum()))


def test_whole_numbers_have_a_bin_each():
    h = Histogram.of(np.array([0, 2, 2, 5]))
    assert h.counts.tolist() == [1, 0, 2, 0, 0, 1]
    assert (h.low, h.high) == (-0.5, 5.5)


@pytest.mark.parametrize("value", [0.0, 500.0, -1e30, 1e-30])
def test_values_that_are_all_alike_are_counted(value):
    h = Histogram.of(np.full(7, value, np.float32))
    assert h.count == 7
    assert h.low < h.high


def test_what_is_not_finite_is_left_out():
    assert Histogram.of(np.array([np.nan, 1.0, np.inf])).count == 1
    assert Histogram.of(np.array([np.nan])) is None


def test_of_pictures_a_part_is_counted_spread_over_all():
    x = np.tile(np.arange(4, dtype=np.uint8), MOST_VALUES)
    h = Histogram.of(x)
    assert h.count <= MOST_VALUES
    assert h.counts.min() > 0.9 * h.count / 4


def test_json_gives_the_same_back():
    h = Histogram.of(np.random.default_rng(0).normal(size=50))
    again = Histogram.from_json(json.loads(json.dumps(h.as_json())))
    np.testing.assert_array_equal(again.counts, h.counts)
    assert (again.low, again.high, again.total, again.squares) == (h.low, h.high, h.total, h.squares)


def test_rows_that_are_not_valid_are_not_counted_and_parts_have_their_own():
    valid = np.ones((4, 2), bool)
    valid[1] = False
    flat = {name: np.zeros((4, 2)) for name in ("returns", "advantages", "ratios")}
    observations = {"camera": np.zeros((4, 2, 3), np.uint8), "action_mask": np.ones((4, 2, 2)), "arm": (np.zeros((4, 2)),)}
    made = of_rows({**flat, "valid": valid, "actions": np.zeros((4, 2, 3)), "observations": observations})
    assert {name.removeprefix("histograms/") for name in made} == {
        "returns", "advantages", "ratios", "actions/0", "actions/1", "actions/2", "observations/camera", "observations/arm/0",
    }  # fmt: skip
    assert made["histograms/returns"].count == 6
    assert made["histograms/observations/camera"].count == 18


def test_tensorboard_gets_them_as_they_were_counted(tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    sink = TensorBoard(tmp_path)
    h = Histogram.of(np.arange(3))
    sink.write_histograms(7, {"histograms/x": h})
    sink.flush()
    (file,) = tmp_path.glob("events.*")
    data, found = file.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        event, data = Event.FromString(data[12 : 12 + length]), data[length + 16 :]
        found += [(event.step, value.tag, value.histo) for value in event.summary.value]
    ((step, tag, histo),) = found
    assert (step, tag, histo.num, histo.sum, histo.sum_squares) == (7, "histograms/x", 3, 3, 5)
    assert list(histo.bucket) == [1, 1, 1]
    assert list(histo.bucket_limit) == [0.5, 1.5, 2.5]
    sink.close()


SETTINGS = {
    "seeds together": {"seeds": 2},
    "host, the learner behind": {"env": "gym_toys:Walk", "num_workers": 0, "learner_lag": 1},
}


@pytest.fixture(scope="module", params=SETTINGS)
def pair(request, tmp_path_factory):
    """The same training without histograms and with them."""
    folder, settings = tmp_path_factory.mktemp("pair"), {**LONG, **SETTINGS[request.param]}
    return trained(folder, "without", **settings), trained(folder, "with", histograms="true", **settings)


def members(run_dir):
    return sorted(run_dir.glob("seed-*")) or [run_dir]


def test_the_parameters_and_the_metrics_are_the_same_bits_with_and_without(pair):
    for without, beside in zip(*map(members, pair), strict=True):
        assert final_state(beside) == final_state(without)
        assert rows(beside) == rows(without)


def test_they_are_made_at_most_fifty_times_and_tell_of_the_training(pair):
    for run_dir in members(pair[1]):
        made = read_rows(run_dir / "histograms.jsonl")
        assert [row["step"] for row in made] == [3 * BATCH * (i + 1) for i in range(40)]
        assert all(set(row) - {"step"} == NAMES for row in made)
        last = {name: Histogram.from_json(value) for name, value in made[-1].items() if name != "step"}
        assert last["histograms/returns"].count <= BATCH
        ratios = last["histograms/ratios"]
        assert 0.5 < ratios.total / ratios.count < 2
        assert ratios.low < 1 < ratios.high
        assert ratios.high - ratios.low > 1e-4, "the policy has learned in between"
    assert not (members(pair[0])[0] / "histograms.jsonl").exists()


def test_a_resume_writes_each_histogram_once(pair, tmp_path):
    folder = copied(pair[1], tmp_path)
    middle = min(checkpoint.steps(members(folder)[0] / "checkpoints"))
    assert 0 < middle < 120 * BATCH
    assert main(["train", "--resume", f"{folder}@{middle}", "--quiet"]) == 0
    for run_dir, whole in zip(members(folder), members(pair[1]), strict=True):
        steps = [row["step"] for row in read_rows(run_dir / "histograms.jsonl")]
        assert steps == [row["step"] for row in read_rows(whole / "histograms.jsonl")]
        if len(members(folder)) > 1:  # environments of the host begin anew
            assert final_state(run_dir) == final_state(whole)


def test_actions_are_those_that_the_environment_gets():
    made = of_rows(
        {
            "valid": np.ones((2, 2), bool),
            **{name: np.zeros((2, 2)) for name in ("returns", "advantages", "ratios")},
            "actions": jnp.array([[3, 4], [4, 4]]),
            "observations": np.zeros((2, 2, 1)),
        }
    )
    assert made["histograms/actions"].counts.tolist() == [1, 3]


def test_a_look_that_an_interruption_cuts_short_costs_nothing_that_was_learned(tmp_path, monkeypatch, capsys):
    """The first look compiles, which may outlast the patience that an interrupted training has."""
    real, asked = Program.look_before, []

    def slow(self, state):
        if not asked:
            asked.append(True)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(LOOK_GRACE_SECONDS + 1)
        return real(self, state)

    monkeypatch.setattr(Program, "look_before", slow)
    words = train_words(tmp_path, "r", **{**LONG, "histograms": "true", "checkpoint_every": 10**6})
    assert main(words) == 128 + signal.SIGTERM
    assert f"Stopped at step {3 * BATCH}, saved." in capsys.readouterr().out
    assert asked
