"""Several processes on loopback: they agree, and each fault of one of them ends all with a sentence."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from commands import free_address
from proximo.collect.devices import with_device_number
from proximo.errors import ConfigError
from proximo.processes.joining import find_cluster
from proximo.processes.peers import Beat, Peers

from helpers import small_config

MEMBER = Path(__file__).with_name("member.py")
HEARTBEAT = 2.0
LIMIT_SECONDS = HEARTBEAT + 8
IMPORT_SECONDS = 10
"""A late process does not become ready, so the time of the others includes their start."""


def run_members(count, fault):
    """Exit code, standard output and standard error of each process, and the seconds between the moment when
    all were ready and the end of those that end by themselves."""
    command, pipes = [sys.executable, MEMBER, free_address(), str(count)], {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    members = [
        subprocess.Popen([*command, str(index), fault], text=True, env={**os.environ, "NPROC": "4"}, **pipes)
        for index in range(count)
    ]
    try:
        ending = members[:1] if fault in ("late", "stopped") else members
        if fault not in ("late", "another setting"):
            assert ending[-1].stdout.readline() == "ready\n"
        began = time.monotonic()
        for member in ending:
            member.wait(timeout=90)
        seconds = time.monotonic() - began
    finally:
        for member in members:
            member.kill()
    return [(member.wait(), *member.communicate()) for member in members], seconds


@pytest.mark.parametrize(
    ("fault", "code", "sentence"),
    [
        ("stopped", 1, "process 0 ends, because process 1 has not answered for 2 s: it was killed or stopped, .* Go on with: this."),
        ("hangs", 1, "process 0 ends, because process 1 hangs: it has not come to the next update, .* Go on with: this."),
        ("raises", 1, r"process 0 ends, because process 1 has failed \(ValueError: no more bananas\). Go on with: this."),
        ("process 0 killed", 1, "process 1 ends, because process 0 has ended. Go on with: this."),
        ("late", 2, "process 0 of 2 could not join the others at 127.0.0.1:.*"),
        ("another setting", 2, "gamma is 0.9 in process 1 and 0.99 in process 0: .*"),
    ],
)  # fmt: skip
def test_a_fault_of_one_process_ends_the_other_with_a_sentence(fault, code, sentence):
    ended, seconds = run_members(2, fault)
    found, _, error = ended[fault == "process 0 killed"]
    assert found == code
    assert seconds < LIMIT_SECONDS + (IMPORT_SECONDS if fault == "late" else 0)
    lines = error.splitlines()
    assert re.fullmatch(f"proximo: {sentence}", lines[-1])
    assert fault == "process 0 killed" or len(lines) == 1  # JAX prints messages before it aborts


def test_processes_agree_and_a_request_to_stop_reaches_all():
    ended, _ = run_members(3, "asked")
    assert [code for code, _, _ in ended] == [0] * 3, ended
    assert all(f"asked to stop by {signal.SIGTERM}" in out for _, out, _ in ended[::2])


@pytest.mark.parametrize(
    ("address", "reason"),
    [("127.0.0.1:{}", "Address already in use"), ("nowhere.invalid:{}", "not known|resolution|No address")],
)
def test_an_address_that_process_0_cannot_use_is_one_sentence(address, reason):
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        address = address.format(occupied.getsockname()[1])
        ended = subprocess.run([sys.executable, MEMBER, address, "2", "0", "none"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    sentence = rf"proximo: process 0 cannot use the address {address} \(.*({reason}).*\): .* with a free port.\n"
    assert re.fullmatch(sentence, ended.stderr)


def test_seeds_in_one_program_need_one_process(monkeypatch):
    monkeypatch.setattr("proximo.collect.devices.current", lambda: SimpleNamespace(count=2))
    with pytest.raises(ConfigError, match="seeds_mode = vmap: with several processes, seeds train one after the other"):
        with_device_number(small_config(seeds=2, seeds_mode="vmap"))


@pytest.mark.parametrize(
    ("beat", "silence", "found"),
    [
        (Beat(arrived=1), 0.0, ""),
        (Beat(arrived=1, idle=11.0), 0.0, ""),
        (Beat(arrived=0, idle=9.0), 0.0, ""),
        (Beat(arrived=0, idle=11.0), 0.0, "process 1 hangs: it has not come to the next update, where others wait, .* for 11 s"),
        (Beat(arrived=1), 12.0, "process 1 has not answered for 12 s"),
        (Beat(failure="ValueError: no"), 12.0, r"process 1 has failed \(ValueError: no\)"),
    ],
)
def test_a_slow_process_is_not_a_hung_one(beat, silence, found):
    dog = Peers(0, 2, None, 10.0)
    dog._own, dog._heard, dog._beats = Beat(arrived=1, doing="the next update"), {0: 20.0, 1: 20.0 - silence}, {1: beat}
    assert re.match(found or "$", dog._fault(20.0))


@pytest.fixture
def no_cluster(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("SLURM", "OMPI", "TORCHELASTIC", "PROXIMO_", "KUBERNETES")):
            monkeypatch.delenv(name)
    return monkeypatch


TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "8", "RANK": "5", "LOCAL_RANK": "1",
}  # fmt: skip
SLURM = {
    "SLURM_JOB_ID": "17", "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_NTASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_NODES": "2",
}  # fmt: skip


@pytest.mark.parametrize(("variables", "expected"), [(TORCHRUN, ("10.0.0.1:29501", 8, 5)), (SLURM, ("node1:", 4, 3))])
def test_a_cluster_is_read_from_the_variables_of_a_launcher(no_cluster, variables, expected):
    for name, value in variables.items():
        no_cluster.setenv(name, value)
    address, count, index, devices = find_cluster(None, None, None)
    assert address.startswith(expected[0])
    assert (count, index, devices) == (*expected[1:], [1])
    assert find_cluster("a:1", 2, 0).device_ids is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((None, None, None), "no cluster was detected .*proximo launch"),
        (("a:1", None, None), "no cluster was detected .*all three"),
        (("a:1", 2, 2), r"process_id = 2: expected 0 to 1 \(num_processes - 1\)"),
        *(((x, 2, i), f"^coordinator = '{x}': expected HOST:PORT") for i in (0, 1) for x in ("a", "h:", "h:65536")),
    ],
)
def test_a_cluster_that_cannot_be_found_is_one_sentence(no_cluster, given, message):
    with pytest.raises(ConfigError, match=message):
        find_cluster(*given)
