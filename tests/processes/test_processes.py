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

from addresses import free_address
from proximo.collect.devices import with_device_number
from proximo.errors import ConfigError
from proximo.processes.joining import find_cluster
from proximo.processes.watchdog import Beat, Watchdog

from helpers import small_config

MEMBER = Path(__file__).with_name("member.py")
HEARTBEAT = 2.0
LIMIT_SECONDS = HEARTBEAT + 8


def run_members(count, fault):
    """Exit codes and standard errors of all processes, and the seconds from the moment when all were ready to the end of the last
    one that was not stopped."""
    address = free_address()
    commands = [[sys.executable, MEMBER, address, str(count), str(index), fault] for index in range(count)]
    members = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "NPROC": "4"})
        for command in commands
    ]
    try:
        watched = [member for index, member in enumerate(members) if not (index == 1 and fault in ("late", "stopped"))]
        ready = watched[-1].stdout.readline() if fault not in ("late", "another number", "another setting") else ""
        began = time.monotonic()
        for member in watched:
            member.wait(timeout=90)
        seconds = time.monotonic() - began
    finally:
        for member in members:
            member.kill()
    outputs = [member.communicate() for member in members]
    return [member.returncode for member in members], outputs, ready, seconds


@pytest.mark.parametrize("count", [2, 4])
def test_processes_agree(count):
    codes, outputs, _, _ = run_members(count, "none")
    assert codes == [0] * count, outputs


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("killed", "process 1 has not answered for 2 s: it was killed or stopped"),
        ("stopped", "process 1 has not answered for 2 s: it was killed or stopped"),
        ("hangs", "process 1 hangs: it has not come to the next update"),
        ("raises", "process 1 has failed (ValueError: no more bananas)"),
    ],
)
def test_a_fault_of_one_process_ends_the_others(fault, sentence):
    codes, outputs, ready, seconds = run_members(4 if fault == "killed" else 2, fault)
    assert ready == "ready\n"
    assert seconds < LIMIT_SECONDS
    for index, (code, (_, error)) in enumerate(zip(codes, outputs, strict=True)):
        if index != 1:
            assert code == 1
            assert error.count("proximo: ") == 1
            assert sentence in error
            assert error.endswith("Go on with: this.\n")


def test_the_end_of_process_0_is_a_sentence():
    codes, outputs, _, seconds = run_members(2, "process 0 killed")
    assert codes == [-signal.SIGKILL, 1]
    assert seconds < LIMIT_SECONDS
    assert outputs[1][1].endswith("proximo: process 1 ends, because process 0 has ended. Go on with: this.\n")


def test_a_request_to_stop_reaches_all():
    codes, outputs, _, _ = run_members(2, "asked")
    assert codes == [0, 0]
    assert f"asked to stop by {signal.SIGTERM}" in outputs[0][0]


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("late", "process 0 of 2 could not join the others at 127.0.0.1:"),
        ("another number", "the number of processes is 3 in process 1 and 2 in process 0"),
        ("another setting", "gamma is 0.9 in process 1 and 0.99 in process 0"),
    ],
)
def test_processes_that_do_not_fit_together_are_refused(fault, sentence):
    codes, outputs, _, _ = run_members(2, fault)
    for code, (_, error) in list(zip(codes, outputs, strict=True))[: 1 if fault == "late" else 2]:
        assert code == 2
        assert error.startswith("proximo: ")
        assert sentence in error
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("127.0.0.1", "Address already in use"),
        ("localhost", "Address already in use"),
        ("203.0.113.1", "Cannot assign requested address"),  # for documentation: no machine has it
        ("nowhere.invalid", "not known|resolution|No address"),
    ],
)
def test_an_address_that_process_0_cannot_use_is_one_sentence(host, reason):
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        address = f"{host}:{occupied.getsockname()[1]}"
        ended = subprocess.run([sys.executable, MEMBER, address, "2", "0", "none"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert re.fullmatch(
        rf"proximo: process 0 cannot use the address {address} \(.*({reason}).*\): .* with a free port.\n", ended.stderr
    )


def test_seeds_in_one_program_need_one_process(monkeypatch):
    monkeypatch.setattr("proximo.collect.devices.current", lambda: SimpleNamespace(count=2))
    with pytest.raises(ConfigError, match="seeds_mode = vmap: with several processes, seeds train one after the other"):
        with_device_number(small_config(seeds=2, seeds_mode="vmap"))


@pytest.mark.parametrize(
    ("beat", "silence", "found"),
    [
        (Beat(arrived=1), 0.0, ""),
        (Beat(arrived=1, waits=True, idle=100.0), 0.0, ""),
        (Beat(arrived=0, idle=9.0), 0.0, ""),
        (Beat(arrived=0, idle=11.0), 0.0, "process 1 hangs: it has not come to the next update, where others wait, .* for 11 s"),
        (Beat(arrived=0, waits=True, idle=11.0), 0.0, ""),  # its last beat is older than the answer that it waited for
        (Beat(arrived=1), 12.0, "process 1 has not answered for 12 s"),
        (Beat(failure="ValueError: no"), 12.0, r"process 1 has failed \(ValueError: no\)"),
    ],
)
def test_the_watchdog_knows_slow_from_hung(beat, silence, found):
    dog = Watchdog(None, 0, 2, 10.0)
    dog._own, dog._heard, dog._beats = Beat(arrived=1, doing="the next update"), {0: 20.0, 1: 20.0 - silence}, {1: beat}
    assert re.match(found or "$", dog._fault(20.0))


@pytest.fixture
def no_cluster(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("SLURM", "OMPI", "TORCHELASTIC", "PROXIMO_", "KUBERNETES")):
            monkeypatch.delenv(name)
    return monkeypatch


def test_a_cluster_is_read_from_the_variables_of_a_launcher(no_cluster):
    for name, value in {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "8",
        "RANK": "5",
        "LOCAL_RANK": "1",
    }.items():
        no_cluster.setenv(name, value)
    no_cluster.setenv("TORCHELASTIC_RUN_ID", "x")
    found = find_cluster(None, None, None)
    assert (found.coordinator, found.num_processes, found.process_id, found.device_ids) == ("10.0.0.1:29501", 8, 5, [1])
    assert find_cluster("a:1", 2, 0).device_ids is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((None, None, None), "no cluster was detected .*proximo launch"),
        (("a:1", None, None), "belong together"),
        (("a", 2, 0), "coordinator = 'a': expected HOST:PORT"),
        (("a:99999", 2, 0), "coordinator = 'a:99999': expected HOST:PORT"),
        (("a:1", 2, 2), "process_id = 2 of num_processes = 2"),
        (("a:1", "2", "0"), "process_id = '0' of num_processes = '2': expected whole numbers"),
    ],
)
def test_a_cluster_that_cannot_be_found_is_one_sentence(no_cluster, given, message):
    with pytest.raises(ConfigError, match=message):
        find_cluster(*given)


def test_slurm_is_detected(no_cluster):
    for name, value in {
        "SLURM_JOB_ID": "17", "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_NTASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "1",
        "SLURM_STEP_NUM_NODES": "2",
    }.items():  # fmt: skip
        no_cluster.setenv(name, value)
    found = find_cluster(None, None, None)
    assert found.coordinator.startswith("node1:")
    assert (found.num_processes, found.process_id) == (4, 3)
