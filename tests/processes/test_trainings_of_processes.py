"""Trainings over processes equal one process with as many devices, and stop and resume as one."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from commands import free_address, rows
from process_states import gone_within
from proximo.cli import main

HALF, STEPS = 256, 512
COMMON = (
    f"--num-envs 8 --num-steps 16 --num-epochs 1 --num-minibatches 2 --hidden-sizes 8 --normalize-observation --normalize-reward "
    f"--checkpoint-every {HALF} --quiet"
)
JAX = f"gymnax:CartPole-v1 --no-preset {COMMON} --eval-episodes 5 --eval-every {HALF}"
GYMNASIUM = f"CartPole-v1 {COMMON} --eval-episodes 5 --memory gru --memory-size 8 --num-workers 0 --total-steps {HALF}"
LAUNCH = "launch -n 2 -- train"


def started(folder, words, devices=1, stderr=subprocess.STDOUT):
    """A ``proximo`` command in ``folder``."""
    environment = {**os.environ, "NPROC": "4", "JAX_NUM_CPU_DEVICES": str(devices)}
    command = [sys.executable, *words] if words[0].endswith(".py") else [sys.executable, "-m", "proximo", *words]
    return subprocess.Popen(
        list(map(str, command)), cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
    )


def ended_well(*processes):
    """The outputs of processes that run at the same time."""
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), outputs
    return outputs


def saved(run_dir, step):
    return safetensors.numpy.load_file(run_dir / "checkpoints" / str(step) / "state.safetensors")


def test_two_processes_train_and_resume_as_one_with_two_devices(tmp_path, capsys):
    two, one = (tmp_path / "runs" / "gymnax-CartPole-v1" / name for name in ("two", "one"))
    ended_well(started(tmp_path, f"{LAUNCH} {JAX} --total-steps {HALF} --histograms --name two".split()))
    resume = f"{LAUNCH} --resume {two} --total-steps {STEPS} --histograms false --quiet"
    ended_well(started(tmp_path, resume.split()))
    ended_well(started(tmp_path, f"train {JAX} --total-steps {STEPS} --name one --devices 2".split(), devices=2))
    for step in (HALF, STEPS):
        found, expected = saved(two, step), saved(one, step)
        assert found.keys() == expected.keys()
        assert [name for name in expected if not np.array_equal(found[name], expected[name])] == []
    assert rows(two) == rows(one)
    assert (two / "histograms.jsonl").exists()
    # One process can resume it.
    assert main(["train", "--resume", str(two), "--total-steps", str(STEPS + 128), "--devices", "1", "--quiet"]) == 0
    assert "devices 2 → 1" in capsys.readouterr().err


def test_two_processes_step_gymnasium_environments_as_one(tmp_path):
    two, one = (tmp_path / "runs" / "CartPole-v1" / name for name in ("two", "one"))
    ended_well(started(tmp_path, f"{LAUNCH} {GYMNASIUM} --name two".split()))
    ended_well(started(tmp_path, f"train {GYMNASIUM} --name one --devices 2".split(), devices=2))
    # A process acts for 4 environments instead of 8. On some CPUs, a product of other sizes is rounded differently.
    found, expected = saved(two, HALF), saved(one, HALF)
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(found[name].astype(float), expected[name].astype(float), rtol=1e-4, atol=1e-6, err_msg=name)
    for row, expected_row in zip(rows(two), rows(one), strict=True):
        assert row == pytest.approx(expected_row, rel=1e-3, abs=1e-5, nan_ok=True)


SAVED = r"\[0\] Stopped at step [\d,]+, saved. Go on with: proximo launch -n 2 -- train --resume"
LOST = r"\[0\] proximo: process 0 ends, because process 1 has not answered .*Go on with: proximo launch -n 2"


@pytest.mark.parametrize(
    ("sent", "to", "code", "sentence"),
    [
        pytest.param(signal.SIGTERM, "process 1", 143, SAVED, marks=pytest.mark.slow),
        (signal.SIGTERM, "launcher", 143, SAVED),
        (signal.SIGKILL, "process 1", 137, LOST),
        pytest.param(signal.SIGKILL, "launcher", -9, "", marks=pytest.mark.slow),
    ],
)
def test_a_signal_to_one_process_ends_all(sent, to, code, sentence, tmp_path):
    run_dir = tmp_path / "runs" / "gymnax-CartPole-v1" / "run"
    settings = f"gymnax:CartPole-v1 {COMMON} --total-steps 50000000 --eval-episodes 0 --checkpoint-every 10000000 --name run"
    launch = started(tmp_path, f"launch -n 2 --heartbeat 3 -- train {settings}".split())
    try:
        until = time.monotonic() + 100
        while not (run_dir / "metrics.jsonl").exists() or not (run_dir / "metrics.jsonl").read_bytes():
            assert launch.poll() is None, launch.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)
        found = subprocess.run(["pgrep", "-P", str(launch.pid)], capture_output=True, text=True, check=True).stdout.split()
        assert len(found) == 2
        began = time.monotonic()
        os.kill(int(found[1]) if to == "process 1" else launch.pid, sent)
        output = launch.communicate(timeout=40)[0]
        assert gone_within(30, found)
        assert time.monotonic() - began < (30 if sent == signal.SIGTERM else 3 + 5)
    finally:
        launch.kill()
    assert launch.returncode == code
    assert re.search(sentence, output), output
    assert len(list((run_dir / "checkpoints").glob("*"))) == (1 if sent == signal.SIGTERM else 0)


def test_a_python_program_trains_with_others(tmp_path):
    program, address = Path(__file__).with_name("program.py"), free_address()
    members = [started(tmp_path, [str(program), address, index], stderr=subprocess.PIPE) for index in range(2)]
    outputs = ended_well(*members)
    first, second = (json.loads(output) for output in outputs)  # Gloo prints nothing into it
    assert first == second
    assert [seed["steps"] for seed in first] == [128, 128]
    for seed in (0, 1):
        written = saved(tmp_path / "runs" / "gymnax-CartPole-v1" / "run" / f"seed-{seed}", 128)
        kept = saved(tmp_path / f"kept-{seed}", 128)
        assert kept.keys() == written.keys()
        assert all(np.array_equal(kept[name], written[name]) for name in written)
        assert np.load(tmp_path / f"action-{seed}.npy").shape == ()
