import os

import pytest

from proximo.run.files import write_atomic


@pytest.mark.parametrize("operation", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_content(tmp_path, monkeypatch, operation):
    write_atomic(tmp_path / "a", "old")

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, operation, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old"
