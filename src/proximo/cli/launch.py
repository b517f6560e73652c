"""Start several processes on this machine that train together. Each uses one GPU, or the CPU.

proximo launch -n N [--heartbeat SECONDS] -- train ENV [--SETTING VALUE]
"""

import concurrent.futures
import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import time
from typing import IO

from proximo.cli import Options, Parser, UsageError
from proximo.jax_setup import LAUNCHER
from proximo.threads import in_thread

ENDING_SECONDS = 3.0
"""After the error of one process, the others have this time to end; after a signal, the heartbeat in addition."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


def make_parser() -> Parser:
    parser = Parser("launch", __doc__)
    parser.add_argument("-n", "--processes", type=int, required=True, metavar="N", help="number of processes")
    limit = "after this time, a process that does not answer or hangs ends the run (default 100)"
    parser.add("--heartbeat", limit, "SECONDS", default=100.0)
    parser.add("command", "the command of each process, after --", "train …", nargs="*")
    return parser


def run(options: Options) -> int:
    command, count = options.command, options.processes
    if command[:1] != ["train"]:
        given = f"{command[0]} cannot be launched" if command else "no command is given"
        raise UsageError(f"{given}: expected train, as in `proximo launch -n 2 -- train brax:ant --num-envs 4096`.")
    if count < 1:
        raise UsageError(f"-n {count}: expected 1 or more processes.")
    processes: list[subprocess.Popen[str]] = []
    readers: list[concurrent.futures.Future[None]] = []
    passed_on: list[int] = []

    def pass_on(number: int, _frame: object) -> None:
        """Pass a signal on to all processes, which agree on the step at which they stop."""
        passed_on.append(number)
        for process in processes:
            process.send_signal(number)  # does nothing to one that has ended

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = [*command, "--distributed", "--heartbeat", f"{options.heartbeat:g}"]
    before = {number: signal.signal(number, pass_on) for number in SIGNALS}
    try:
        for index in range(count):
            processes.append(process := _start(index, count, port, words))
            answer = "" if "--json" in command else f"[{index}] "  # JSON is the answer of process 0 alone, without a number
            for streams in ((process.stdout, sys.stdout, answer), (process.stderr, sys.stderr, f"[{index}] ")):
                readers.append(in_thread(_print_lines, *streams))
        code = _wait(processes, options.heartbeat, passed_on)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
    concurrent.futures.wait(readers, ENDING_SECONDS)
    return 128 - code if code < 0 else code


def _wait(processes: list[subprocess.Popen[str]], heartbeat: float, passed_on: list[int]) -> int:
    """Wait until all have ended, or, after the error of one, for a short time. Returns its code, or 0."""
    code, until = 0, math.inf
    while (codes := [process.poll() for process in processes]) and time.monotonic() < until:
        if not code and (code := next(filter(None, codes), 0)):
            if code < 0:  # it was killed, and so could not print anything itself
                name = signal.Signals(-code).name
                message = f"proximo: process {codes.index(code)} was ended by {name}, so the others end, too."
                print(message, file=sys.stderr, flush=True)
            # After a signal, process 0 may still save.
            until = time.monotonic() + ENDING_SECONDS + (heartbeat if code < 0 or code > 128 or passed_on else 0.0)
        if None not in codes:
            break
        time.sleep(0.1)
    return code


def _start(index: int, count: int, port: int, command: list[str]) -> subprocess.Popen[str]:
    """Start a process. Its environment variables have the names that torchrun gives them."""
    variables = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port - 1),  # of torchrun itself; process 0 listens on the next one
        "WORLD_SIZE": str(count),
        "RANK": str(index),
        "LOCAL_RANK": str(index),
        "TORCHELASTIC_RUN_ID": "proximo launch",
        LAUNCHER: str(os.getpid()),
        "PYTHONUNBUFFERED": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "proximo", *command],  # -P: a file proximo.py in the working folder is not imported
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches only this process, which passes it on once
    )


def _print_lines(source: IO[str], target: IO[str], prefix: str) -> None:
    for line in source:
        with contextlib.suppress(BrokenPipeError):
            target.write(f"{prefix}{line.rstrip()}\n")
            target.flush()
