"""Runs are read as what they are: by session, with how they ended."""

import json

import numpy as np
import pytest

from made_runs import BATCH, SPEED, made_group, made_rows, made_run, write_rows
from proximo.errors import CheckpointError
from proximo.report.read import read_run, read_runs
from proximo.report.tables import speed
from proximo.storage.run_lock import RunLock


def test_metrics_are_read_with_their_steps_and_seconds(tmp_path):
    run = read_run(made_run(tmp_path / "r", updates=20, seed=3))
    series = run.series["train/approx_kl"]
    np.testing.assert_array_equal(series.step, BATCH * np.arange(1, 21))
    np.testing.assert_allclose(series.seconds, series.step / SPEED)
    assert (run.status, run.step, run.seed, run.label) == ("finished", 20 * BATCH, 3, "r")
    assert run.seconds == pytest.approx(20 * BATCH / SPEED)
    assert run.start_info["command"] == "proximo train gymnax:CartPole-v1"
    assert "0.10.2" in run.start_info["versions"]


def test_evaluation_has_the_time_of_the_previous_row(tmp_path):
    run = read_run(made_run(tmp_path / "r"))
    evaluations = run.series["eval/return_mean"]
    np.testing.assert_allclose(evaluations.seconds, evaluations.step / SPEED)


def test_null_is_not_a_value(tmp_path):
    run = read_run(made_run(tmp_path / "r"))
    assert len(run.series["rollout/return_mean"].value) == len(run.series["train/approx_kl"].value) - 1


def test_seconds_of_a_resumed_run_continue(tmp_path):
    run_dir = made_run(tmp_path / "r", updates=20)
    # The second session's clock begins at zero; its first row has run for longer than the whole first session.
    rows = made_rows(2, 100, 0) + [
        {"step": step * BATCH, "time/seconds": 9.0 * (step - 2), "time/steps_per_second": BATCH / 9.0} for step in (3, 4)
    ]
    write_rows(run_dir, rows)
    first = 2 * BATCH / SPEED
    seconds = [s for row, s in zip(rows, _row_seconds(run_dir), strict=True) if "time/seconds" in row]
    np.testing.assert_allclose(seconds, [first / 2, first, first + 9, first + 18])
    assert read_run(run_dir).seconds == pytest.approx(first + 18)


def test_seconds_that_decrease_begin_a_session(tmp_path):
    run_dir = made_run(tmp_path / "r", updates=20)
    # Earlier versions wrote a speed that is too high for the row: the session seems to begin before the previous row.
    resumed = [{"step": step * BATCH, "time/seconds": 3.0 * (step - 2), "time/steps_per_second": BATCH} for step in (3, 4)]
    write_rows(run_dir, [{"step": 2 * BATCH, "time/seconds": 36_000.0, "time/steps_per_second": 2 * BATCH / 36_000}, *resumed])
    assert _row_seconds(run_dir) == [36_000, 36_003, 36_006]


def test_steps_before_a_pulled_run_do_not_count_for_its_speed(tmp_path):
    run_dir = made_run(tmp_path / "r", updates=20)
    write_rows(run_dir, [{"step": 1000 + 50 * i, "time/seconds": 2.0 * i, "time/steps_per_second": 25.0} for i in (1, 2)])
    run = read_run(run_dir)
    assert (run.first_step, run.step, speed(run)) == (1000, 1100, 25.0)
    assert read_run(made_run(tmp_path / "s", updates=20)).first_step == 0


def _row_seconds(run_dir):
    from proximo.report.read import _seconds
    from proximo.tracking.json_lines import read_rows

    return _seconds(read_rows(run_dir / "metrics.jsonl"))


def test_row_of_a_failed_vmapped_seed_starts_no_new_session(tmp_path):
    run_dir = made_run(tmp_path / "r", updates=20)
    rows = made_rows(4, 100, 0)
    # The others of its program have gone on: their steps stand in its speed.
    rows.append({"step": 5 * BATCH, "time/seconds": 7 * BATCH / SPEED, "time/steps_per_second": SPEED})
    write_rows(run_dir, rows)
    assert read_run(run_dir).seconds == pytest.approx(7 * BATCH / SPEED)


def test_a_run_that_stopped_early_is_interrupted(tmp_path):
    run_dir = made_run(tmp_path / "r", updates=20)
    write_rows(run_dir, made_rows(12, 100, 0))
    assert read_run(run_dir).status == "interrupted"


def test_a_run_whose_last_evaluation_is_missing_is_interrupted(tmp_path):
    run_dir = made_run(tmp_path / "r", updates=20)
    write_rows(run_dir, made_rows(20, 100, 0)[:-1])
    assert read_run(run_dir).status == "interrupted"
    without = made_run(tmp_path / "w", updates=20, eval_episodes=0)
    write_rows(without, made_rows(20, 100, 0)[:-1])
    assert read_run(without).status == "finished"


def test_complete_run_whose_last_evaluation_is_nan_is_finished(tmp_path):
    run_dir = made_run(tmp_path / "r", updates=20)
    rows = made_rows(20, 100, 0)
    write_rows(run_dir, [*rows[:-1], {**rows[-1], "eval/return_mean": None}])
    run = read_run(run_dir)
    assert (run.status, run.invalid) == ("finished", True)


def test_run_that_a_callback_stopped_has_its_reason(tmp_path):
    run_dir = made_run(tmp_path / "r", updates=20)
    write_rows(run_dir, made_rows(12, 100, 0))
    (run_dir / "stopped.txt").write_text("A callback has stopped the training at step 12288.\n")
    run = read_run(run_dir)
    assert (run.status, run.why) == ("stopped", "A callback has stopped the training at step 12288.")


def test_locked_run_is_running_and_killed_run_is_interrupted(tmp_path):
    run_dir = made_run(tmp_path / "r", updates=20)
    write_rows(run_dir, made_rows(12, 100, 0))
    with RunLock(run_dir):
        assert read_run(run_dir).status == "running"
    (run_dir / ".lock.json").write_text("{}")
    assert read_run(run_dir).status == "interrupted"


def test_failed_run_has_its_reason(tmp_path):
    run_dir = made_run(tmp_path / "r")
    (run_dir / "failure.txt").write_text("NaN or infinity in the loss.\n")
    run = read_run(run_dir)
    assert (run.status, run.why) == ("failed", "NaN or infinity in the loss.")


def test_a_group_is_read_by_seeds_and_each_run_once(tmp_path):
    group = made_group(tmp_path / "runs" / "e" / "g", seeds=3)
    runs = read_runs(["g", str(group / "seed-1"), "e/g"], tmp_path / "runs")
    assert [run.label for run in runs] == ["g/seed-0", "g/seed-1", "g/seed-2"]
    assert {run.name for run in runs} == {"g"}
    assert [run.seed for run in runs] == [0, 1, 2]


def test_a_seed_by_itself_keeps_the_name_of_its_group(tmp_path):
    group = made_group(tmp_path / "g", seeds=2)
    assert read_runs([str(group / "seed-1")], tmp_path)[0].label == "g/seed-1"


def test_seed_that_has_not_started_is_read_with_the_others(tmp_path):
    group = made_group(tmp_path / "g", seeds=2)
    (group / "seed-1" / "metrics.jsonl").unlink()
    assert [run.status for run in read_runs([str(group)], tmp_path)] == ["finished", "not started"]


def test_run_without_any_row_raises_one_sentence(tmp_path):
    run_dir = made_run(tmp_path / "r")
    (run_dir / "metrics.jsonl").write_text("")
    with pytest.raises(CheckpointError, match=r"r has no metrics yet: wait for the first update"):
        read_runs([str(run_dir)], tmp_path)


def test_checkpoint_of_a_run_cannot_be_reported(tmp_path):
    made_run(tmp_path / "r")
    with pytest.raises(CheckpointError, match=r"'.*r@best': a report is about whole runs, not checkpoints: omit @"):
        read_runs([f"{tmp_path}/r@best"], tmp_path)


def test_damaged_line_raises_and_incomplete_last_line_is_ignored(tmp_path):
    run_dir = made_run(tmp_path / "r")
    file = run_dir / "metrics.jsonl"
    whole = file.read_text()
    file.write_text(whole + '{"step": 99')
    assert read_run(run_dir).step == 20 * BATCH
    file.write_text("nonsense\n" + whole)
    with pytest.raises(CheckpointError, match=r"metrics.jsonl is damaged: line 1 is not a row"):
        read_run(run_dir)


@pytest.mark.parametrize(
    "content", [b"garbage", b"\x00" * 50, b"[1, 2]\n", b'{"other": 1', b"[" * 10**5, b'{"step": 1000000000000000000000}\n' * 2]
)
def test_file_of_other_content_is_damaged_and_not_empty(tmp_path, content):
    run_dir = made_run(tmp_path / "r")
    (run_dir / "metrics.jsonl").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"metrics.jsonl is damaged: line 1 is"):
        read_run(run_dir)


@pytest.mark.parametrize("content", [b"", b'{"st', b'{"step": 1024, "train/lo'])
def test_incomplete_first_row_means_not_started(tmp_path, content):
    run_dir = made_run(tmp_path / "r")
    (run_dir / "metrics.jsonl").write_bytes(content)
    assert read_run(run_dir).status == "not started"


def test_non_numeric_values_and_damaged_system_info_are_ignored(tmp_path):
    run_dir = made_run(tmp_path / "r")
    with open(run_dir / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": 30 * BATCH, "train/loss": "high", "train/list": [1], "train/flag": True}) + "\n")
        file.write('{"step": 31744, "train/nan": NaN, "train/large": 1%s}\n' % ("0" * 400))
    (run_dir / "system.json").write_text("[" * 10**5)
    run = read_run(run_dir)
    assert not {"train/loss", "train/list", "train/flag", "train/nan", "train/large"} & set(run.series)
    assert set(run.start_info) == {"command"}


def test_a_report_without_runs_raises(tmp_path):
    with pytest.raises(CheckpointError, match="No run is named: expected at least one, such as last"):
        read_runs([], tmp_path)
