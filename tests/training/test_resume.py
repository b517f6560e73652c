"""A resumed run equals the uninterrupted one, bit for bit; what prevents a resume is reported."""

import os
import re
import shutil
import signal
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

import proximo
from commands import BATCH, GRU, SMALL, copied, final_state, last_best, rows, train_words, trained
from made_runs import flip, save_checkpoint
from proximo.cli import main
from proximo.cli.reporters import TrainingReporter
from proximo.config import Config
from proximo.errors import ConfigError
from proximo.processes.peers import ALONE
from proximo.storage import checkpoint, run_directory
from proximo.tracking.reporter import Reporter
from proximo.training import interrupts, resuming
from proximo.training.backends import JaxBackend

TOTAL = SMALL["total_steps"]
CHECKPOINTS = {"checkpoint_every": 3 * BATCH, "keep_checkpoints": 50}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of each kind, with all of its checkpoints."""
    folder = tmp_path_factory.mktemp("whole")
    kinds = {"feed-forward": {}, "gru": GRU}
    return {name: trained(folder, name, **settings, **CHECKPOINTS) for name, settings in kinds.items()}


UPDATE_BY_UPDATE = {**CHECKPOINTS, "updates_per_call": 1, "eval_every": 2 * BATCH}


@pytest.fixture(scope="module")
def update_by_update(tmp_path_factory):
    """An uninterrupted run that can be stopped after every update."""
    return trained(tmp_path_factory.mktemp("update by update"), "it", **UPDATE_BY_UPDATE)


def resumed(run_dir, which="", *words):
    assert main(["train", "--resume", f"{run_dir}{which}", *words]) == 0
    return run_dir


@pytest.mark.parametrize("kind", ["feed-forward", "gru"])
def test_resume_from_every_checkpoint_equals_the_uninterrupted_run(whole, tmp_path, capsys, kind):
    run_dir = copied(whole[kind], tmp_path)
    for step in checkpoint.steps(run_dir / "checkpoints")[-2::-3]:
        resumed(run_dir, f"@{step}")
        assert f"resumed at step {step}" in capsys.readouterr().out
        for found in (final_state, rows, checkpoint.best_step):
            assert found(run_dir) == found(whole[kind]), step


@pytest.mark.parametrize("lost", ["memory", "observation", "key"])
def test_losing_a_part_of_the_collector_changes_the_bits(whole, tmp_path, monkeypatch, lost):
    restore = resuming.restore

    def restore_without_part(backend, *arguments):
        state = restore(backend, *arguments)
        fresh = backend.start([0]).collector
        parts = {name: getattr(fresh if name == lost else state.collector, name) for name in vars(fresh)}
        return type(state)(state.learner, type(fresh)(**parts), state.healthy)

    monkeypatch.setattr(resuming, "restore", restore_without_part)
    run_dir = resumed(copied(whole["gru"], tmp_path), f"@{3 * BATCH}")
    assert final_state(run_dir) != final_state(whole["gru"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_resume_of_a_stopped_run_equals_the_uninterrupted_run(update_by_update, tmp_path, monkeypatch, capsys, number, code):
    update = TrainingReporter.advanced
    monkeypatch.setattr(interrupts.signal, "getsignal", lambda _: signal.SIG_DFL)  # also where these tests run under nohup

    def stop(self, steps, *rest):
        update(self, steps, *rest)
        if steps == 5 * BATCH:
            signal.raise_signal(number)

    monkeypatch.setattr(TrainingReporter, "advanced", stop)
    assert main(train_words(tmp_path, "feed-forward", **UPDATE_BY_UPDATE)) == code
    monkeypatch.undo()
    run_dir = tmp_path / "toys-RandomEnds" / "feed-forward"
    assert capsys.readouterr().out.splitlines()[-1] == f"Stopped at step 160, saved. Go on with: proximo train --resume {run_dir}"
    assert checkpoint.steps(run_dir / "checkpoints")[-1] == 5 * BATCH
    assert rows(run_dir)[-1]["step"] == 5 * BATCH
    resumed(run_dir)
    assert final_state(run_dir) == final_state(update_by_update)


def test_schedules_of_an_extended_run_end_at_the_new_total(tmp_path, capsys):
    run_dir = trained(tmp_path, "r", learning_rate="linear(1e-3, 0)", keep_checkpoints=50)
    assert main(["train", "--resume", str(run_dir)]) == 2
    assert f"proximo: {run_dir} is complete at step {TOTAL}: give a larger --total-steps" in capsys.readouterr().err
    resumed(run_dir, "", "--total-steps", str(2 * TOTAL))
    assert f"warning: total_steps {TOTAL} → {2 * TOTAL}: schedules stretch over the new total" in capsys.readouterr().out
    rates = {row["step"]: row["train/learning_rate"] for row in rows(run_dir) if "train/learning_rate" in row}
    assert rates[TOTAL] < 1e-4
    assert 4e-4 < max(rate for step, rate in rates.items() if step > TOTAL) < 5e-4
    assert 0 < rates[2 * TOTAL] < 1e-4
    resumed(run_dir, f"@{TOTAL}")  # keeps the new total, and does not warn again
    out = capsys.readouterr().out
    assert "warning: total_steps" not in out
    assert f"warning: {run_dir} continues from step {TOTAL}: its later checkpoints (" in out
    assert run_directory.read_config(run_dir).ppo.total_steps == checkpoint.steps(run_dir / "checkpoints")[-1] == 2 * TOTAL
    assert len((run_dir / "command.txt").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--gamma", "0.9"], "gamma cannot change when a run is resumed (only actors, checkpoint_every,"),
        (["--num-envs", "8"], "num_envs cannot change"),
        (["--seed", "3"], "seed cannot change"),
        (["--total-steps", "x"], "total_steps = 'x': expected a whole number"),
        (["--total-step", "9"], "Unknown setting 'total-step' (did you mean 'total_steps'?)"),
        (["--smoke"], "--resume continues a run with its settings"),
        (["--show-config"], "--resume continues a run with its settings"),
        (["--no-preset"], "--resume continues a run with its settings"),
        (["toys:Counting"], "The environment cannot change when a run is resumed"),
        (["--config", "x.yaml"], "--resume continues a run with its settings"),
    ],
)
def test_settings_that_a_resumed_run_cannot_change_raise(whole, monkeypatch, capsys, words, sentence):
    monkeypatch.setattr(JaxBackend, "start", lambda *_: pytest.fail("computed before it was refused"))
    monkeypatch.setattr(JaxBackend, "prepare", lambda *_: pytest.fail("compiled before it was refused"))
    before = final_state(whole["gru"])
    assert main(["train", "--resume", f"{whole['gru']}@{3 * BATCH}", *words]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"proximo: {sentence}")
    assert (out, err.count("\n")) == ("", 1)
    assert final_state(whole["gru"]) == before


def test_damaged_newest_checkpoint_is_reported_and_an_older_one_used(whole, tmp_path, capsys):
    run_dir = copied(whole["feed-forward"], tmp_path)
    newest, older = checkpoint.steps(run_dir / "checkpoints")[:-3:-1]
    flip(run_dir / "checkpoints" / str(newest) / "state.safetensors", -100, 0)
    assert main(["eval", str(run_dir), "--episodes", "2"]) == 0
    out, err = capsys.readouterr()
    assert "state.safetensors has the sha256" in err
    assert f"at step {older}:" in out
    resumed(run_dir)
    out = capsys.readouterr().out
    assert "is damaged: state.safetensors has the sha256" in out
    assert f"resumed at step {older}" in out
    assert final_state(run_dir) == final_state(whole["feed-forward"])


def test_run_without_a_checkpoint_starts_again_with_a_warning(whole, tmp_path, capsys):
    run_dir = copied(whole["feed-forward"], tmp_path)
    shutil.rmtree(run_dir / "checkpoints")
    assert main(["eval", str(run_dir)]) == 2
    err = capsys.readouterr().err
    assert "There is no checkpoint in" in err
    assert err.endswith(f"proximo train --resume {run_dir}\n")
    resumed(run_dir)
    assert "warning: no checkpoint was saved yet" in capsys.readouterr().out
    assert final_state(run_dir) == final_state(whole["feed-forward"])
    assert rows(run_dir) == rows(whole["feed-forward"])


def test_checkpoint_of_another_run_raises_and_changes_no_file(whole, tmp_path, capsys):
    run_dir = copied(whole["gru"], tmp_path)
    shutil.rmtree(run_dir / "checkpoints")
    shutil.copytree(whole["feed-forward"] / "checkpoints", run_dir / "checkpoints")
    (run_dir / "failure.txt").write_text("NaN in the loss.\n")
    before = files_of(run_dir)
    for words in (["train", "--resume", f"{run_dir}@{3 * BATCH}"], ["eval", str(run_dir)]):
        assert main(words) == 2
        assert re.search("memory = gru in .*, but its checkpoint was trained with none", capsys.readouterr().err)
        assert files_of(run_dir) == before


def test_a_locked_run_cannot_be_resumed(whole, tmp_path, capsys, monkeypatch):
    run_dir = copied(whole["gru"], tmp_path)
    before = final_state(run_dir)
    with run_directory.locked(run_dir), monkeypatch.context() as patch:
        patch.setattr(resuming, "starts", lambda *_: pytest.fail("a step was chosen before"))
        assert main(["train", "--resume", f"{run_dir}@{3 * BATCH}"]) == 2
        assert f"{run_dir} is in use by process {os.getpid()}" in capsys.readouterr().err
        assert final_state(run_dir) == before
        assert main(["eval", str(run_dir), "--episodes", "2"]) == 0
    assert main(["train", "--resume", f"{run_dir}@{3 * BATCH}"]) == 0


def test_resume_before_the_best_checkpoint_removes_it(whole, tmp_path):
    run_dir = copied(whole["feed-forward"], tmp_path)
    (run_dir / "best").unlink()
    checkpoint.mark_best(run_dir, TOTAL)
    resumed(run_dir, f"@{3 * BATCH}")
    evaluations = {row["step"]: row["eval/return_mean"] for row in rows(run_dir) if "eval/return_mean" in row}
    assert checkpoint.best_step(run_dir) == last_best(evaluations)


def files_of(run_dir):
    """The content of all files, without events and locks."""
    left_out = ("events", ".lock")
    return {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file() and not path.name.startswith(left_out)}


def test_a_resume_that_fails_before_its_first_update_changes_nothing(whole, tmp_path, monkeypatch):
    run_dir = copied(whole["feed-forward"], tmp_path)
    (run_dir / "stopped.txt").write_text("A callback has stopped the training.\n")
    before = files_of(run_dir)
    monkeypatch.setattr(JaxBackend, "prepare", mock.Mock(side_effect=MemoryError("no memory for the environments")))
    with pytest.raises(MemoryError):
        proximo.resume(f"{run_dir}@{3 * BATCH}", total_steps=2 * TOTAL)
    assert files_of(run_dir) == before
    with pytest.raises(ConfigError, match=f"is already at step {TOTAL}, but total_steps = {TOTAL - BATCH}"):
        proximo.resume(run_dir, total_steps=TOTAL - BATCH)
    assert files_of(run_dir) == before


def test_kill_during_a_rewind_loses_no_row(whole, tmp_path, monkeypatch):
    run_dir = copied(whole["feed-forward"], tmp_path)
    real, count = shutil.rmtree, [0]

    def killed(path, **options):
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt
        real(path, **options)

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        proximo.resume(f"{run_dir}@{3 * BATCH}")
    monkeypatch.setattr(shutil, "rmtree", real)
    resumed(run_dir)
    assert (final_state(run_dir), rows(run_dir)) == (final_state(whole["feed-forward"]), rows(whole["feed-forward"]))


def test_stacked_seeds_begin_again_together_if_one_has_no_checkpoint(tmp_path):
    run_dirs = [tmp_path / name for name in ("seed-0", "seed-1")]
    for run_dir in run_dirs:
        run_dir.mkdir()
    save_checkpoint(run_dirs[0] / "checkpoints", 0, {"x": np.zeros(3)}, {})
    runs = resuming.starts(run_dirs, [Config()] * 2, "last", True, Reporter(), ALONE)
    assert [(run.resumed_at, run.saved) for run in runs] == [(0, None)] * 2


@pytest.mark.parametrize(
    ("reason", "resumed"), [("NaN or infinity in the loss between steps 0 and 32", False), ("toy.step raised", True)]
)
def test_a_group_resumes_the_seed_whose_environment_failed_but_not_the_one_with_nan(tmp_path, reason, resumed):
    seeds, warned = [tmp_path / "seed-0", tmp_path / "seed-1"], []
    for seed in seeds:
        seed.mkdir()
    (seeds[0] / "failure.txt").write_text(reason)
    assert resuming.not_ended(seeds, SimpleNamespace(warned=warned.append)) == (seeds if resumed else seeds[1:])
    sentence = "seed-0 is not resumed, because it failed (failure.txt has the reason). A seed is resumed by its own name."
    assert warned == ([] if resumed else [sentence])
