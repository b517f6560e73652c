"""One worker process, the training process's ends of its pipes, and the messages that they carry.

Commands and replies have a fixed size. Objects are pickled, after their length. Both ends are this program, so no foreign data is unpickled.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import sysconfig
import time
from typing import Any

POSIX = os.name == "posix"
COMMAND = struct.Struct("<BI")
"""Command, step."""
STEP, RESET, CLOSE = range(3)
DONE, TRUNCATED, FAULT, LOST = b".", b"t", b"!", b""
"""Replies: done; done, and an episode was truncated; an exception follows; the worker has ended."""
_LENGTH = struct.Struct("<Q")
# A new interpreter instead of a fork: it is safe in a process with JAX's threads, and does not run the user's script again.
# With -P, and with the working folder last in the path, a file json.py there does not replace Python's module.
_BOOT = (
    "import sys; sys.path[:] = sys.argv[2:]; import cloudpickle; from proximo.envs.gymnasium import construction, worker; "
    "worker.main(int(sys.argv[1]))"
)
# There are as many workers as cores, so the libraries in each of them use one thread.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


def read_exactly(descriptor: int, size: int) -> bytes:
    """Read ``size`` bytes. Raises ``EOFError`` if the other side has ended."""
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``; a pipe accepts only as much as it has room for."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_object(descriptor: int, value: Any) -> None:
    """Write a picklable object."""
    data = pickle.dumps(value)
    write_all(descriptor, _LENGTH.pack(len(data)) + data)


def read_object(descriptor: int) -> Any:
    """Read what ``write_object`` wrote."""
    return pickle.loads(read_exactly(descriptor, _LENGTH.unpack(read_exactly(descriptor, _LENGTH.size))[0]))


class WorkerProcess:
    """A worker, started. ``begin`` sends it its setup, an object with ``path`` whose method ``serve`` then runs
    there. It inherits the file ``descriptor``, if any."""

    def __init__(self, setup: Any, descriptor: int = -1):
        self.setup, self._descriptor = setup, descriptor
        self.start()

    def start(self) -> None:
        """Start the process; also again, after ``release``."""
        lifeline, self._lifeline = os.pipe() if POSIX else (-1, -1)
        try:
            self.popen = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, str(lifeline), *sorted(self.setup.path, key=_is_working_folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env={**dict.fromkeys(_ONE_THREAD, "1"), **os.environ},
                # Its own process group: the terminal's Ctrl-C does not reach it, and its child processes can be killed with it.
                **({"pass_fds": [d for d in (lifeline, self._descriptor) if d >= 0], "start_new_session": True} if POSIX else {}),
            )
        except OSError:
            self._close_lifeline()
            raise
        finally:
            if lifeline >= 0:
                os.close(lifeline)
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.commands, self.replies = self.popen.stdin.fileno(), self.popen.stdout.fileno()
        self.sent = time.monotonic()
        """When the last command was sent."""
        self.why_killed = ""
        """Why proximo killed it; empty if it did not."""

    def begin(self) -> None:
        """Send the setup. The worker replies when its environments are made."""
        self.sent = time.monotonic()
        with contextlib.suppress(OSError):
            write_object(self.commands, self.setup)

    def command(self, what: int, row: int, *payload: Any) -> None:
        """Send a command. If the worker has ended, the missing reply reveals it."""
        self.sent = time.monotonic()
        with contextlib.suppress(OSError):
            write_all(self.commands, COMMAND.pack(what, row))
            if payload:
                write_object(self.commands, payload)

    def has_replied(self, seconds: float) -> bool:
        """Whether there is an unread reply, or the worker has ended, within ``seconds``."""
        replies = self.replies  # read once, because another thread may release the process
        if replies < 0:
            return True
        poll = select.poll()
        poll.register(replies, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def reply(self) -> bytes:
        """Wait for a reply: ``DONE``, ``TRUNCATED``, or ``LOST`` if the worker has ended. Raises an exception that the worker sent."""
        try:
            reply = os.read(self.replies, 1)
            error = read_object(self.replies) if reply == FAULT else None
        except (EOFError, OSError):  # another thread may release the process
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
        if self.popen.returncode is not None:
            return  # its id may belong to another process now
        self.why_killed = self.why_killed or why
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if POSIX:
                os.killpg(self.popen.pid, signal.SIGKILL)
            else:
                self.popen.kill()

    def release(self) -> None:
        """Kill the worker and close its pipes."""
        self.kill()
        self.popen.wait()
        self.commands = self.replies = -1  # other files may get these descriptors
        for pipe in (self.popen.stdin, self.popen.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._close_lifeline()

    def _close_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def search_path() -> tuple[str, ...]:
    """Return ``sys.path`` with the standard library first: a user's ``types.py`` cannot replace Python's module."""
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_config_var("DESTSHARED")}
    return tuple(sorted((entry for entry in sys.path if isinstance(entry, str)), key=lambda entry: entry not in standard))


def _is_working_folder(entry: str) -> bool:
    with contextlib.suppress(OSError):  # the folder does not exist
        return os.path.samefile(entry or os.curdir, os.curdir)
    return False
