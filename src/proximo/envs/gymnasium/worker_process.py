"""A worker process, as the training process starts and ends it, and what runs there. It does not import
JAX, and ends with its parent."""

import contextlib
import faulthandler
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from typing import IO, Any

POSIX = os.name == "posix"
Pipe = IO[bytes]
COMMAND = struct.Struct("<BI")
"""Command, row. The end of the pipe ends the worker. Commands and replies have a fixed size; a pickled
object may follow. Both ends are this program, so no foreign data is unpickled."""
STEP, RESET = range(2)
DONE, TRUNCATED, FAULT, LOST = b".", b"t", b"!", b""
"""Replies: done; done, and an episode was truncated; an exception follows; the worker has ended."""
AWAKE_SECONDS = 200e-6
"""How long a worker polls for the next command before it sleeps."""
# A new interpreter instead of a fork: it is safe in a process with JAX's threads, and does not run the user's script again.
# With -P, and with the working folder last in the path, a file json.py there does not replace Python's module.
_BOOT = (
    "import sys; sys.path[:] = sys.argv[2:]; import cloudpickle; from proximo.envs.gymnasium import environment, worker_process; "
    "worker_process.main(int(sys.argv[1]))"
)
# There are as many workers as cores, so the libraries in each of them use one thread.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


def send(pipe: Pipe, data: bytes, *objects: Any) -> None:
    """Send ``data`` and pickled objects, which ``pickle.load`` reads. A command or reply alone passes no
    buffer: with one at both ends of the pipes, a step of 16 environments takes a tenth longer."""
    if objects:
        pipe.write(data + b"".join(map(pickle.dumps, objects)))
        pipe.flush()
    else:
        os.write(pipe.fileno(), data)


class WorkerProcess:
    """A process that runs ``program(commands, replies)``, once ``begin`` has sent it. The arguments are its
    ends of the pipes.

    ``columns`` are the environments that it steps, in the file ``memory``.
    """

    def __init__(self, program: Callable[[Pipe, Pipe], None], columns: range = range(0), memory: int = -1):
        self.program, self.columns, self._memory, self._path = program, columns, memory, search_path()
        self.start()

    def start(self) -> None:
        """Start the process; also again, after ``release``."""
        lifeline, ours = os.pipe()
        self._lifeline = open(ours, "wb")  # noqa: SIM115
        try:
            self.popen = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, str(lifeline), *sorted(self._path, key=_is_working_folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**dict.fromkeys(_ONE_THREAD, "1"), **os.environ},
                pass_fds=[descriptor for descriptor in (lifeline, self._memory) if descriptor >= 0],
                start_new_session=True,  # Ctrl-C does not reach it, and its child processes can be killed with it
            )
        finally:
            os.close(lifeline)
        self.commands: Any = self.popen.stdin
        self.replies: Any = self.popen.stdout
        self._poll = select.poll()
        self._poll.register(self.replies, select.POLLIN)
        self.sent = time.monotonic()
        """When the last command was sent."""
        self.why_killed = ""
        """Why proximo killed it; empty if it did not."""

    def begin(self) -> None:
        """Send the program."""
        self.send(b"", (self._path, self.program))

    def send(self, data: bytes, *objects: Any) -> None:
        """Send a packed ``COMMAND``, and objects if it needs some."""
        self.sent = time.monotonic()
        with contextlib.suppress(OSError, ValueError):  # if the worker has ended, the missing reply reveals it
            send(self.commands, data, *objects)

    def has_replied(self, seconds: float) -> bool:
        """Whether there is an unread reply, or the worker has ended, within ``seconds``."""
        return self.replies.closed or bool(self._poll.poll(1000 * seconds))

    def reply(self) -> bytes:
        """Wait for a reply: ``DONE``, ``TRUNCATED``, or ``LOST`` if the worker has ended. Raises an
        exception that the worker sent."""
        try:
            reply = os.read(self.replies.fileno(), 1)  # not into a buffer, where poll finds no other reply
            error = pickle.load(self.replies) if reply == FAULT else None
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):  # it ended, or another thread has released it
            return LOST
        if error is not None:
            raise error
        return reply

    def why_lost(self) -> str:
        """Describe how the worker ended, and end its child processes."""
        if self.why_killed:
            return self.why_killed
        self.kill()  # the processes that it started: its own exit code is fixed before its pipes close
        code = self.popen.wait()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def kill(self, why: str = "") -> None:
        """Kill the worker and its child processes."""
        if self.popen.returncode is None:  # otherwise its id may belong to another process now
            self.why_killed = self.why_killed or why
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.popen.pid, signal.SIGKILL)

    def release(self) -> None:
        """Kill the worker and close its pipes."""
        self.kill()
        self.popen.wait()
        self.replies.close()
        with contextlib.suppress(OSError):  # a command that it did not read
            self.commands.close()
        self._lifeline.close()


def search_path() -> tuple[str, ...]:
    """Return ``sys.path`` with the standard library first: a user's ``types.py`` cannot replace Python's
    module."""
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_config_var("DESTSHARED")}
    return tuple(sorted((entry for entry in sys.path if isinstance(entry, str)), key=lambda entry: entry not in standard))


def _is_working_folder(entry: str) -> bool:
    with contextlib.suppress(OSError):  # the folder does not exist
        return os.path.samefile(entry or os.curdir, os.curdir)
    return False


def main(lifeline: int) -> None:
    """Run the program that standard input brings, until the parent closes it or ends. ``lifeline`` is the
    file descriptor of a pipe that ends with the parent."""
    # Environments read nothing, and print to standard error.
    commands, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    faulthandler.enable()  # a crash in an environment's native code shows where
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent receives the signal too, and decides
    _die_with_parent(lifeline)
    with contextlib.suppress(EOFError, BrokenPipeError):  # the parent has ended
        path, program = pickle.load(commands)
        sys.path[:] = path  # for the user's modules, after proximo's modules are imported
        program(commands, replies)
    # Threads, exit handlers and child processes of an environment must not outlive the worker.
    os.killpg(0, signal.SIGKILL)


def next_command(commands: Pipe) -> bytes:
    """Read a command; empty if there is no other. It polls for a short time, and yields the core to other
    processes meanwhile: sleeping and waking up takes longer than a step of a small environment
    (docs/decisions/0006-gymnasium-collector.md)."""
    poll, until = select.poll(), time.perf_counter() + AWAKE_SECONDS
    poll.register(commands, select.POLLIN)
    while not poll.poll(0) and time.perf_counter() < until:
        os.sched_yield()
    return os.read(commands.fileno(), COMMAND.size)


def _die_with_parent(lifeline: int) -> None:
    """End this process group, with the processes of environments, when the pipe ``lifeline`` ends with the
    parent.

    On Linux the kernel kills the group, even if an environment hangs in native code that holds the GIL,
    which blocks the thread of other systems.
    """
    import fcntl  # Windows has no such module

    with contextlib.suppress(AttributeError, OSError):
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)  # not SIGIO, which a simulator may ignore
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)

    def wait() -> None:
        poll = select.poll()
        poll.register(lifeline, 0)  # the end of a pipe is always reported
        poll.poll()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()
