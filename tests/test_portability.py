"""proximo is imported, and trains, without what only Linux, or only POSIX systems, have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

# What a ``sitecustomize`` removes before anything else is imported, in the training process and in its workers.
NO_LINUX = """
import builtins, fcntl, io, os
for name in ("memfd_create", "sched_getaffinity", "sched_getscheduler", "sched_setscheduler", "SCHED_BATCH", "waitid"):
    delattr(os, name)
del fcntl.F_SETSIG

def without_linux_folders(function):
    def call(path, *args, **kwargs):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/dev/shm")):
            raise FileNotFoundError(2, "removed by the test", os.fspath(path))
        return function(path, *args, **kwargs)
    return call

os.stat, os.scandir, os.listdir = map(without_linux_folders, (os.stat, os.scandir, os.listdir))
io.open = builtins.open = without_linux_folders(open)
"""
NO_POSIX = """
import os, select, signal, sys
for name in ("fork", "getpgrp", "killpg", "setsid", "sched_yield"):
    delattr(os, name)
del select.poll, signal.SIGHUP, signal.SIGKILL
sys.modules["fcntl"] = sys.modules["resource"] = None

def refuse(*args, **kwargs):
    raise OSError("removed by the test: links need a permission")

os.symlink = refuse
"""
IMPORTS = """
import importlib, pkgutil, sys
import proximo
for module in pkgutil.walk_packages(proximo.__path__, "proximo."):
    if module.name != "proximo.__main__" and "integrations" not in module.name:
        importlib.import_module(module.name)
"""
TRAINS = """
import os
import proximo
small = dict(num_envs=2, num_steps=8, num_minibatches=1, num_epochs=1, total_steps=32, hidden_sizes=(4,), eval_episodes=1, tensorboard=False)
workers = {"num_workers": 1 if hasattr(os, "fork") else 0} if "ENV".startswith("gym_") else {}
[result] = proximo.train("ENV", preset=False, name="ENV"[:3], **small, **workers)
print(proximo.load_policy(f"{result.run_dir}@best").step)
"""


@pytest.mark.learning
@pytest.mark.parametrize(
    ("removed", "program", "trainings"),
    [
        pytest.param(NO_LINUX, TRAINS.replace("ENV", "gym_toys:Countdown"), 1, id="macOS"),
        pytest.param(
            NO_LINUX + NO_POSIX,
            IMPORTS + TRAINS.replace("ENV", "toys:RandomEnds") + TRAINS.replace("ENV", "gym_toys:Countdown"),
            2,
            id="Windows",
        ),
    ],
)
def test_training_needs_no_call_that_only_linux_has(removed, program, trainings, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(removed)
    search = os.pathsep.join([str(tmp_path), str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": search}
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout == "32\n" * trainings
