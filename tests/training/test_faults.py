"""Faults of the disk and the run directory during a training: progress is saved, and the error names the reason."""

import contextlib
import os
import shutil
import time

import numpy as np
import pytest

import proximo
from commands import BATCH, SMALL, final_state, rows
from disks import fill_disk_for, full_disk, wait_for_room
from proximo.collect.learning import BAD_SOURCES
from proximo.errors import CheckpointError, RunDirectoryError
from proximo.storage import checkpoint
from proximo.tracking.reporter import Reporter
from proximo.training import saver
from proximo.training.events import first_non_finite

SETTINGS = {**SMALL, "tensorboard": "true", "track": "csv"}
TOTAL = SMALL["total_steps"]


class At:
    """Calls ``action(info)`` after the update that reaches ``step``."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_update(self, info):
        if info.step == self.step:
            self.action(info)


class ReporterRecorder(Reporter):
    def __init__(self):
        self.warnings, self.stops = [], []
        self.warned, self.stopped = self.warnings.append, self.stops.append


def train(folder, name, *callbacks, env="toys:RandomEnds", reporter=None, **settings):
    """A small training in this process."""
    config = proximo.make_config(env, {**SETTINGS, "runs_dir": str(folder), "name": name, **settings}, preset=False)
    try:
        return proximo.train(config=config, callbacks=list(callbacks), reporter=reporter or ReporterRecorder())[0].run_dir
    finally:
        wait_for_room()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The training without faults."""
    return train(tmp_path_factory.mktemp("whole"), "r")


def values(run_dir):
    """The rows of ``metrics.csv``, without columns that depend on the clock."""
    lines = (run_dir / "metrics.csv").read_text().splitlines()
    shown = [i for i, name in enumerate(lines[0].split(",")) if not name.startswith("time/")]
    return [[line.split(",")[i] for i in shown] for line in lines]


def test_disk_full_for_moments_costs_no_update_or_checkpoint(whole, tmp_path):
    recorder = ReporterRecorder()
    fills = [At(step, lambda _: fill_disk_for(0.3)) for step in (3 * BATCH, 10 * BATCH)]
    run_dir = train(tmp_path, "r", *fills, reporter=recorder)
    assert final_state(run_dir) == final_state(whole)
    assert [row for row in rows(whole) if row in rows(run_dir)] == rows(run_dir), "no row is damaged or written twice"
    assert [row for row in values(whole) if row in values(run_dir)] == values(run_dir)
    assert checkpoint.steps(run_dir / "checkpoints") == checkpoint.steps(whole / "checkpoints")
    assert any("Retrying for 10 s" in warning for warning in recorder.warnings)
    assert len({warning.split(" (")[0] for warning in recorder.warnings}) == len(recorder.warnings), "each file is warned of once"


def test_training_goes_on_while_a_checkpoint_is_written(whole, tmp_path, monkeypatch):
    write, reached, waits = checkpoint.write, [0], []

    class Advanced(ReporterRecorder):
        def advanced(self, steps, steps_per_second, recent_return):
            reached[0] = steps

    def write_after_the_next_update(folder, step, files):
        until = time.monotonic() + 10.0
        while step < TOTAL and reached[0] <= step and time.monotonic() < until:
            time.sleep(0.001)
        waits.append(reached[0] > step)
        return write(folder, step, files)

    monkeypatch.setattr(checkpoint, "write", write_after_the_next_update)
    run_dir = train(tmp_path, "r", reporter=Advanced())
    assert len(waits) > 3
    assert all(waits[:-1])
    steps = checkpoint.steps(whole / "checkpoints")
    assert checkpoint.steps(run_dir / "checkpoints") == steps
    for step in steps:  # what is written must not change with the state of the training
        state, state_of_whole = ((d / "checkpoints" / str(step) / checkpoint.STATE).read_bytes() for d in (run_dir, whole))
        assert state == state_of_whole
    assert rows(run_dir) == rows(whole)


@pytest.mark.parametrize("lasting", [False, True])
def test_error_on_a_full_disk_is_reported_and_saving_retried(tmp_path, monkeypatch, lasting):
    if lasting:
        monkeypatch.setattr(saver, "RETRY_SECONDS", 0.5)
    recorder = ReporterRecorder()

    def fail(_):
        fill_disk_for(1.0 if lasting else 0.3)
        raise RuntimeError("of the user")

    with pytest.raises(RuntimeError, match="of the user"):
        train(tmp_path, "r", At(3 * BATCH, fail), reporter=recorder)
    run_dir = tmp_path / "toys-RandomEnds" / "r"
    assert checkpoint.steps(run_dir / "checkpoints")[-1] == (2 if lasting else 3) * BATCH
    if lasting:
        assert any("/96 (File too large): earlier checkpoints" in message for message in recorder.warnings)
    else:
        assert recorder.stops == [f"Stopped at step 96, saved. Go on with: proximo train --resume {run_dir}"]


def test_disk_that_stays_full_stops_training_with_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(saver, "RETRY_SECONDS", 0.3)
    started, run_dir = [], tmp_path / "toys-RandomEnds" / "r"
    sentence = r"Cannot write checkpoint .*/128 \(File too large\): earlier checkpoints are intact"
    with contextlib.ExitStack() as stack:
        fill = At(3 * BATCH, lambda _: (started.append(time.monotonic()), stack.enter_context(full_disk())))
        with pytest.raises(CheckpointError, match=sentence):
            train(tmp_path, "r", fill)
        assert time.monotonic() - started[0] < 3
    assert checkpoint.steps(run_dir / "checkpoints") == [2 * BATCH]
    assert not list(run_dir.rglob("*.tmp"))


def test_resume_on_a_full_disk_raises_and_changes_nothing(tmp_path):
    run_dir = train(tmp_path, "r", total_steps=TOTAL // 2)
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    with full_disk(), pytest.raises(RunDirectoryError, match=r"Cannot write into .*/r \(File too large\)"):
        proximo.resume(run_dir, total_steps=TOTAL, reporter=ReporterRecorder())
    assert {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()} == before


def test_changing_the_working_folder_during_training_moves_no_file(whole, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    run_dir = train("runs", "r", At(BATCH, lambda _: os.chdir(elsewhere)))
    assert run_dir == tmp_path / "runs" / "toys-RandomEnds" / "r"
    assert final_state(run_dir) == final_state(whole)
    os.chdir(tmp_path)
    leave = At(TOTAL + BATCH, lambda _: os.chdir(elsewhere))
    proximo.resume("toys-RandomEnds/r", total_steps=TOTAL + 2 * BATCH, callbacks=[leave], reporter=ReporterRecorder())
    assert checkpoint.steps(run_dir / "checkpoints")[-1] == TOTAL + 2 * BATCH
    assert list(elsewhere.iterdir()) == []


def test_failed_save_costs_no_evaluation(tmp_path, monkeypatch):
    write, failed = checkpoint.write, []

    def fail_once(folder, step, files):
        if step == 4 * BATCH and not failed:
            failed.append(step)
            raise CheckpointError("no room")
        write(folder, step, files)

    monkeypatch.setattr(checkpoint, "write", fail_once)
    monkeypatch.setattr(saver, "RETRY_SECONDS", -1.0)
    with pytest.raises(CheckpointError, match="no room"):
        train(tmp_path, "r", eval_every=5 * BATCH, checkpoint_every=4 * BATCH)
    run_dir = tmp_path / "toys-RandomEnds" / "r"
    assert checkpoint.steps(run_dir / "checkpoints") == [5 * BATCH], "the last state is saved"
    proximo.resume(run_dir, reporter=ReporterRecorder())
    evaluated = [row["step"] for row in rows(run_dir) if "eval/return_mean" in row]
    assert evaluated == [*range(5 * BATCH, TOTAL + 1, 5 * BATCH)]


@pytest.mark.parametrize("action", [shutil.rmtree, lambda run_dir: run_dir.rename(run_dir.with_name("renamed"))])
def test_removed_or_renamed_run_folder_ends_the_training_and_is_not_recreated(tmp_path, monkeypatch, action):
    monkeypatch.setattr(saver, "RETRY_SECONDS", 0.3)
    run_dir = tmp_path / "toys-RandomEnds" / "r"
    with pytest.raises(CheckpointError, match=r"Cannot write checkpoint .* \(No such file or directory\)"):
        train(tmp_path, "r", At(3 * BATCH, lambda _: action(run_dir)), video_every=4 * BATCH)
    assert not run_dir.exists()


def test_first_non_finite_update_is_the_earliest_with_its_source():
    metrics = {f"bad/{name}": np.zeros((2, 4)) for name in BAD_SOURCES}
    metrics["bad/loss"][1, 2:] = metrics["bad/reward"][1, 3] = metrics["bad/gradient"][1, 2] = 1
    assert first_non_finite(metrics, 0) == (4, "")
    assert first_non_finite(metrics, 1) == (2, "loss")
