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
small = dict(num_envs=2, num_steps=8, num_minibatches=1, num_epochs=1, total_steps=32, hidden_sizes=(4,), eval_episodes=1, tensorboard=False)
for env, settings in (("toys:RandomEnds", {}), ("gym_toys:Countdown", {"num_workers": WORKERS})):
    [result] = proximo.train(env, preset=False, name=env.split(":")[1], **small, **settings)
    policy = proximo.load_policy(f"{result.run_dir}@best")
    print(env, policy.step)
"""


@pytest.mark.learning
@pytest.mark.parametrize(("removed", "workers"), [(NO_LINUX, 2), (NO_LINUX + NO_POSIX, 0)], ids=["macOS", "Windows"])
def test_training_needs_no_call_that_only_linux_has(removed, workers, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(removed)
    search = os.pathsep.join([str(tmp_path), str(TESTS), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", IMPORTS + TRAINS.replace("WORKERS", str(workers))]
    environment = {**os.environ, "PYTHONPATH": search}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.split() == ["toys:RandomEnds", "32", "gym_toys:Countdown", "32"]
