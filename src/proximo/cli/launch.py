"""``proximo launch``: several processes on this machine that train together."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import IO

from proximo.cli import Parser, UsageError
from proximo.processes.variables import COORDINATOR, HEARTBEAT, LAUNCHER, NUM_PROCESSES, PROCESS_ID

ENDING_SECONDS = 3.0
"""When a process has ended with an error, the others have this time to end by themselves; when it was killed, the heartbeat in addition."""
POLL_SECONDS = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


def run(arguments: list[str]) -> int:
    """Start the processes, pass on their output, and end all when one ends with an error."""
    options = make_parser().parse_args(arguments)
    command = options.command
    if command[:1] == ["proximo"]:
        raise UsageError("The command after -- begins with train: omit proximo.")
    if command[:1] != ["train"]:
        given = f"{command[0]} cannot be launched" if command else "no command is given"
        raise UsageError(f"{given}: expected train, as in `proximo launch -n 2 -- train brax:ant --num-envs 4096`.")
    if "--distributed" in command:
        raise UsageError("`proximo launch` adds --distributed itself: omit it.")
    if options.processes < 1:
        raise UsageError(f"-n {options.processes}: expected 1 or more processes.")
    return _Launch(options.processes, options.heartbeat, [*command, "--distributed"]).wait()


def make_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="proximo launch",
        description="Start several processes on this machine that train together. Each uses one GPU, or the CPU.",
        usage="proximo launch -n N [--heartbeat SECONDS] -- train ENV [--SETTING VALUE]",
    )
    parser.add_argument("-n", "--processes", type=int, required=True, metavar="N", help="number of processes")
    help_text = "after this time, a process that does not answer or hangs ends the run (default 100)"
    parser.add_argument("--heartbeat", type=float, default=100.0, metavar="SECONDS", help=help_text)
    parser.add_argument("command", nargs="*", metavar="train …", help="the command of each process, after --")
    return parser


class _Launch:
    """The processes of a launch."""

    def __init__(self, count: int, heartbeat: float, command: list[str]):
        self.heartbeat = heartbeat
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        shared = {
            COORDINATOR: f"127.0.0.1:{port}",
            NUM_PROCESSES: str(count),
            HEARTBEAT: f"{heartbeat:g}",
            LAUNCHER: str(os.getpid()),
        }
        # JSON is the answer of process 0 alone, without a prefix.
        self._as_json = "--json" in command
        self.processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self._forwarded = False
        self._before = {number: signal.signal(number, self._forward) for number in SIGNALS}
        for index in range(count):
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "proximo", *command],  # -P: a file proximo.py in the working folder is not imported
                env={**os.environ, **shared, PROCESS_ID: str(index), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C reaches only this process, which passes it on once
            )
            self.processes.append(process)
            for source, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                assert source is not None
                reader = threading.Thread(target=self._pass_on, args=(index, source, target), daemon=True)
                reader.start()
                self._readers.append(reader)

    def _pass_on(self, index: int, source: IO[str], target: IO[str]) -> None:
        """Print the lines of a process, with its number before each."""
        for line in source:
            prefix = "" if self._as_json and target is sys.stdout else f"[{index}] "
            with contextlib.suppress(BrokenPipeError):
                target.write(f"{prefix}{line.rstrip()}\n")
                target.flush()

    def wait(self) -> int:
        """Wait until all processes have ended. Returns the exit code of the first one that failed."""
        try:
            first: subprocess.Popen[str] | None = None
            until = 0.0
            while None in [process.poll() for process in self.processes]:
                failed = next((process for process in self.processes if process.returncode), None)
                if failed is not None and first is None:
                    # After a signal, process 0 may still save.
                    slow = failed.returncode < 0 or failed.returncode > 128 or self._forwarded
                    first, until = failed, time.monotonic() + ENDING_SECONDS + (self.heartbeat if slow else 0.0)
                    self._explain(failed)
                if first is not None and time.monotonic() > until:
                    break
                time.sleep(POLL_SECONDS)
        finally:
            for process in self.processes:
                if process.poll() is None:
                    process.kill()
                process.wait()
            for number, handler in self._before.items():
                signal.signal(number, handler)
        for reader in self._readers:
            reader.join(ENDING_SECONDS)
        first = first or next((process for process in self.processes if process.returncode), None)
        return 0 if first is None else 128 - first.returncode if first.returncode < 0 else first.returncode

    def _explain(self, process: subprocess.Popen[str]) -> None:
        """Name a process that was killed: it could not print anything itself."""
        if process.returncode < 0:
            name = signal.Signals(-process.returncode).name
            message = f"proximo: process {self.processes.index(process)} was ended by {name}, so the others end, too."
            print(message, file=sys.stderr, flush=True)

    def _forward(self, number: int, _frame: object) -> None:
        """Pass a signal on to all processes, which agree on the step at which they stop."""
        self._forwarded = True
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)
