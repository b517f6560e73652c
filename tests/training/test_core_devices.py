"""Seeds of one program are divided over cores, which changes nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What ``core_devices.py`` prints."""
    program, folder = Path(__file__).with_name("core_devices.py"), tmp_path_factory.mktemp("cores")
    command = [sys.executable, "-W", "error::RuntimeWarning", str(program), str(folder)]
    variables = {
        **os.environ,
        "NPROC": "4",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_four_seeds_on_three_cores_use_two(found):
    assert found["devices"] == 3
    assert found["of four seeds"] == [2]


def test_a_single_seed_uses_one(found):
    assert found["last"] == 1


def test_a_resumed_group_equals_the_uninterrupted_one_bit_for_bit(found):
    assert found["resumed"]
    assert found["differs"] == 4, "all seeds are the same"


def test_a_seed_learns_what_it_learns_alone(found):
    assert found["difference"] < 1e-3


def test_cores_are_no_devices_for_users(found):
    assert "devices" not in found["described"]
    assert found["all"] == 1
