"""Runs are read with their settings, sessions and how they ended."""

import numpy as np
import pytest

from made_runs import BATCH, SPEED, made_group, made_rows, made_run, write_rows
from proximo.report.runs import read_run, read_runs
from proximo.storage.run_directory import locked


def test_metrics_have_their_steps_and_seconds_and_null_is_no_value(tmp_path):
    run = read_run(made_run(tmp_path / "r", updates=20, seed=3))
    assert (run.status, run.step, run.settings["seed"], run.label) == ("finished", 20 * BATCH, 3, "r")
    for name, updates in (
        ("train/approx_kl", range(1, 21)),
        ("rollout/return_mean", range(2, 21)),
        ("eval/return_mean", (5, 10, 15, 20)),
    ):
        series = run.series(name)
        np.testing.assert_array_equal(series.step, BATCH * np.array(updates))
        np.testing.assert_allclose(series.seconds, series.step / SPEED)
    assert len(run.series("never/measured").value) == 0


def timed(*rows):
    return [{"step": step, "time/seconds": seconds, "time/steps_per_second": speed} for step, seconds, speed in rows]


@pytest.mark.parametrize(
    ("rows", "seconds"),
    [
        # The second session's clock begins at zero; its first row has run for longer than the whole first session.
        (timed((1, 1.0, 1.0), (2, 2.0, 1.0), (3, 9.0, 1 / 9), (4, 18.0, 1 / 9)), [1, 2, 11, 20]),
        # A clock that goes back begins a session, also if the speed is too high for its row.
        (timed((2, 36_000.0, 2 / 36_000), (3, 3.0, 1.0), (4, 6.0, 1.0)), [36_000, 36_003, 36_006]),
        # A failed seed of a vmapped program: the other seeds have gone on, and their steps are in its speed.
        (timed((1, 1.0, 1.0), (2, 2.0, 1.0), (3, 5.0, 1.0)), [1, 2, 5]),
        ([{"step": 1, "train/loss": 1.0}, *timed((2, 2.0, 1.0)), {"step": 2, "eval/return_mean": 1.0}], [0, 2, 2]),
    ],
)
def test_seconds_are_summed_over_sessions(tmp_path, rows, seconds):
    run_dir = made_run(tmp_path / "r")
    write_rows(run_dir, rows)
    np.testing.assert_allclose(read_run(run_dir).seconds, seconds)
    write_rows(run_dir, timed((1050, 2.0, 25.0), (1100, 4.0, 25.0)))
    assert (read_run(run_dir).first_step, read_run(run_dir).step) == (1000, 1100), "the run was pulled at step 1000"


def nan_evaluation(rows):
    return [*rows[:-1], {**rows[-1], "eval/return_mean": None}]


@pytest.mark.parametrize(
    ("rows", "files", "settings", "expected"),
    [
        (made_rows(20, 100, 0), {}, {}, ("finished", "")),
        (nan_evaluation(made_rows(20, 100, 0)), {}, {}, ("finished", "")),
        (made_rows(12, 100, 0), {}, {}, ("interrupted", "")),
        (made_rows(12, 100, 0), {".lock.json": "{}"}, {}, ("interrupted", "")),
        (made_rows(20, 100, 0)[:-1], {}, {}, ("interrupted", "")),
        (made_rows(20, 100, 0)[:-1], {}, {"eval_episodes": 0}, ("finished", "")),
        (made_rows(12, 100, 0), {"stopped.txt": "By a callback.\n"}, {}, ("stopped", "By a callback.")),
        (made_rows(20, 100, 0), {"failure.txt": "NaN in the loss.\n"}, {}, ("failed", "NaN in the loss.")),
        ([], {}, {}, ("not started", "")),
    ],
)
def test_status_is_how_a_run_ended(tmp_path, rows, files, settings, expected):
    run_dir = made_run(tmp_path / "r", updates=20, **settings)
    write_rows(run_dir, rows)
    for name, text in files.items():
        (run_dir / name).write_text(text)
    run = read_run(run_dir)
    assert (run.status, run.why) == expected
    if expected[0] == "interrupted":
        with locked(run_dir):
            assert read_run(run_dir).status == "running"


def test_a_group_is_read_by_seeds_and_each_run_once(tmp_path):
    group = made_group(tmp_path / "runs" / "e" / "g", seeds=3)
    (group / "seed-2" / "metrics.jsonl").unlink()
    runs = read_runs(["g", str(group / "seed-1"), "e/g"], tmp_path / "runs")
    assert [(run.label, run.settings["name"], run.settings["seed"]) for run in runs] == [
        (f"g/seed-{i}", "g", i) for i in range(3)
    ]
    assert [run.status for run in runs] == ["finished", "finished", "not started"]
    assert [run.label for run in read_runs([str(group / "seed-1")], tmp_path)] == ["g/seed-1"]
