import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from made_runs import save_checkpoint
from proximo.errors import CheckpointError
from proximo.storage import checkpoint, retention


def save(folder: Path, step: int) -> None:
    save_checkpoint(folder, step, {"a": np.full(3, step)}, {})


def test_prune_keeps_newest_and_protected_and_removes_leftovers(tmp_path):
    for step in (1, 2, 3, 4, 5):
        save(tmp_path, step)
    for name in (".saving-6-99", ".removing-0", ".removing-5"):
        (tmp_path / name).mkdir()
    retention.prune(tmp_path, keep=2, protect={1, 77})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "4", "5"]
    retention.prune(tmp_path, keep=9, protect=set())
    assert checkpoint.steps(tmp_path) == [1, 4, 5]


def test_discard_after_removes_later_checkpoints(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    assert retention.discard_after(tmp_path, 1) == [2, 3]
    assert checkpoint.steps(tmp_path) == [1]


def test_best_is_a_file_that_names_the_checkpoint(tmp_path):
    for step in (3, 12):
        save(tmp_path / "checkpoints", step)
    assert retention.best_step(tmp_path) is None
    for step in (3, 12):
        retention.mark_best(tmp_path, step)
        assert (tmp_path / "best").read_text() == f"checkpoints/{step}\n"
        assert retention.best_step(tmp_path) == step


@pytest.mark.parametrize("made", ["link", "copy"])
def test_best_of_an_earlier_version_is_read(tmp_path, made):
    """A link, or in a copy that followed links, a folder."""
    save(tmp_path / "checkpoints", 3)
    if made == "link":
        os.symlink("checkpoints/3", tmp_path / "best")
    else:
        shutil.copytree(tmp_path / "checkpoints" / "3", tmp_path / "best")
    assert retention.best_step(tmp_path) == 3


def test_damaged_best_raises(tmp_path):
    (tmp_path / "best").write_text("../elsewhere")
    with pytest.raises(CheckpointError, match=r"best is damaged: it names '../elsewhere', expected checkpoints/<step>"):
        retention.best_step(tmp_path)
