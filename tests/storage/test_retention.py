import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from proximo.errors import CheckpointError
from proximo.storage import checkpoint, retention, run_lookup


class Crash(BaseException):
    """The process ends here: no handler of ours may count on running."""


def save(folder: Path, step: int) -> None:
    checkpoint.save(folder, step, {"a": np.full(3, step)}, {})


def test_prune_keeps_newest_and_protected_and_removes_leftovers(tmp_path):
    for step in (1, 2, 3, 4, 5):
        save(tmp_path, step)
    for name in (".saving-6-99", ".removing-0", ".replaced-5"):
        (tmp_path / name).mkdir()
    retention.prune(tmp_path, keep=2, protect={1, 77})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "4", "5"]
    retention.prune(tmp_path, keep=9, protect=set())
    assert checkpoint.steps(tmp_path) == [1, 4, 5]


def test_crash_while_pruning_leaves_no_damaged_checkpoint(tmp_path, monkeypatch):
    for step in (1, 2, 3):
        save(tmp_path, step)
    real = shutil.rmtree

    def half(path, **kwargs):
        (Path(path) / checkpoint.META).unlink()
        raise Crash

    monkeypatch.setattr(shutil, "rmtree", half)
    with pytest.raises(Crash):
        retention.prune(tmp_path, keep=2, protect=set())
    monkeypatch.setattr(shutil, "rmtree", real)
    assert checkpoint.steps(tmp_path) == [2, 3]
    retention.prune(tmp_path, keep=2, protect=set())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]


def test_discard_after_removes_later_checkpoints(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    assert retention.discard_after(tmp_path, 1) == [2, 3]
    assert checkpoint.steps(tmp_path) == [1]


def test_best_is_a_relative_link_that_moves(tmp_path):
    for step in (3, 12):
        save(tmp_path / "checkpoints", step)
    assert retention.best_step(tmp_path) is None
    retention.mark_best(tmp_path, 3)
    os.symlink("left by a crash", tmp_path / f".best-{os.getpid()}")
    retention.mark_best(tmp_path, 12)
    assert os.readlink(tmp_path / "best") == "checkpoints/12"
    assert retention.best_step(tmp_path) == 12
    assert checkpoint.load(tmp_path / "best").step == 12


def test_best_is_a_text_file_without_permission_for_links(tmp_path, monkeypatch):
    for step in (3, 12):
        save(tmp_path / "checkpoints", step)
    retention.mark_best(tmp_path, 3)

    def refuse(*args, **kwargs):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", refuse)
    retention.mark_best(tmp_path, 12)
    assert not (tmp_path / "best").is_symlink()
    assert (tmp_path / "best").read_text() == "checkpoints/12\n"
    assert retention.best_step(tmp_path) == 12
    monkeypatch.undo()
    retention.mark_best(tmp_path, 3)
    assert (tmp_path / "best").is_symlink()
    assert retention.best_step(tmp_path) == 3


def test_best_must_point_at_an_existing_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="Cannot mark step 8 as best: there is no checkpoint"):
        retention.mark_best(tmp_path, 8)
    (tmp_path / "best").write_text("../elsewhere")
    with pytest.raises(CheckpointError, match=r"points at '../elsewhere', expected checkpoints/<step>"):
        retention.best_step(tmp_path)


@pytest.fixture
def followed(tmp_path):
    """A run with two checkpoints, copied by a program that follows links."""
    (tmp_path / "run").mkdir()
    for step in (3, 12):
        save(tmp_path / "run" / "checkpoints", step)
    retention.mark_best(tmp_path / "run", 3)
    return Path(shutil.copytree(tmp_path / "run", tmp_path / "copy"))


def test_best_of_a_copy_that_followed_links_becomes_a_link_again(followed):
    assert retention.best_step(followed) == 3
    retention.restore_link(followed)
    assert os.readlink(followed / "best") == "checkpoints/3"
    assert sorted(path.name for path in followed.iterdir()) == ["best", "checkpoints"]


@pytest.mark.parametrize("lost", ["checkpoints", "checkpoints/3", "checkpoints/3/meta.json"])
def test_only_copy_of_the_best_checkpoint_is_kept(followed, lost):
    gone = followed / lost
    gone.unlink() if gone.is_file() else shutil.rmtree(gone)
    retention.restore_link(followed)
    assert os.readlink(followed / "best") == "checkpoints/3"
    assert checkpoint.load(followed / "checkpoints" / "3").step == 3


def test_only_copy_of_the_best_checkpoint_is_found(followed):
    shutil.rmtree(followed / "checkpoints" / "3")
    found, warnings = run_lookup.find_checkpoint(followed, "best")
    assert (found.step, warnings) == (3, [])


def test_best_folder_without_a_checkpoint_raises_and_is_kept(tmp_path):
    (tmp_path / "best").mkdir()
    for function in (retention.best_step, retention.restore_link):
        with pytest.raises(
            CheckpointError, match=r"best is a folder without a checkpoint, expected a link to checkpoints/<step>"
        ):
            function(tmp_path)
    assert (tmp_path / "best").is_dir()
