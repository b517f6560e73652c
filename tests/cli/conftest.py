"""What tests of commands share."""

import shutil

import pytest

from commands import trained


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A run, and a group of two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    run_dir = trained(folder, "r", "proximo:PocMemory", total_steps=320)
    for seed in (0, 1):
        shutil.copytree(run_dir, run_dir.parent / "g" / f"seed-{seed}")
    return folder
