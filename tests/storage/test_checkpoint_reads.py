"""Each use of a run reads every file of its checkpoint once: a checkpoint may be large, and hashing it takes time."""

import sys
from collections import Counter

import pytest

from commands import BATCH, SMALL, copied, trained
from proximo.agent import load
from proximo.evaluation.policy import load_policy
from proximo.storage import checkpoint
from proximo.training.api import resume

_OPENED: list[str] = []


def _audit(event, arguments):
    if event == "open" and str(arguments[0]).endswith((checkpoint.STATE, checkpoint.META)) and arguments[2] & 3 == 0:
        _OPENED.append(str(arguments[0]))


sys.addaudithook(_audit)  # sees every file that Python opens, by whatever function; it cannot be removed


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs"), "r")


def reads(call):
    """How often ``call()`` reads each file of a checkpoint."""
    _OPENED.clear()
    call()
    return Counter(_OPENED)


def files(run_dir, step):
    return {str(run_dir / "checkpoints" / str(step) / name): 1 for name in (checkpoint.STATE, checkpoint.META)}


@pytest.mark.parametrize("read", [load, load_policy])
def test_load_reads_each_file_once(run, read):
    assert reads(lambda: read(run)) == files(run, SMALL["total_steps"])


def test_resume_reads_each_file_once(run, tmp_path):
    run_dir, total = copied(run, tmp_path), SMALL["total_steps"]
    found = reads(lambda: resume(run_dir, total_steps=total + BATCH))
    assert found == files(run_dir, total)
