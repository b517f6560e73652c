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
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(tests), str(tests / "tuning"), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, "NPROC": "4", "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_as_few_cores_share_the_seeds_as_train_two_each(found):
    assert found["devices"] == 3
    assert (found["of five seeds"], found["of four seeds"], found["last"]) == ([3], [2], 1)
    assert found["as four of five"], "a copy of a seed changes no other seed"
    assert found["differs"] == 5, "all seeds are the same"
    assert found["difference"] < 1e-3, "a seed learns what it learns alone"
    assert "devices" not in found["described"], "cores are no devices for users"
    assert found["all"] == 1


def test_histograms_are_computed_on_one_core(found):
    """Divided, each core would need the seeds of the others. The group without them has the same bits."""
    assert found["inspected on"] == [1]


def test_a_tuning_batch_narrows_if_a_core_then_trains_fewer_trials(found):
    five, two = found["narrowed"]
    assert five == [[[4, 100]], 2], "two cores trained two trials each"
    assert two == [[[0, 100], [1, 100]], 1], "each on its own core: one alone would take as long"


def test_a_resumed_group_equals_the_uninterrupted_one_bit_for_bit(found):
    assert found["resumed"]
    (warning,), none = found["warnings"]
    assert warning.startswith("the number of cores that share the seeds was 0 and is 3 now")
    assert none == [], "for groups only"
