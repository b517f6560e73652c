"""The program of a worker process, which steps environments on command, without JAX. It ends with its parent."""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import pickle
import select
import signal
import sys
import threading
import time
from dataclasses import dataclass

from proximo.custom_code import exception_text
from proximo.envs.gymnasium import worker_process as messages
from proximo.envs.gymnasium.rollout_buffer import BufferLayout
from proximo.envs.gymnasium.stepper import EnvironmentSpec, Stepper

AWAKE_SECONDS = 200e-6
"""How long a worker polls for the next command before it sleeps."""


@dataclass(frozen=True)
class Setup:
    """What a worker needs to make its environments."""

    factory: bytes
    """A function that makes one environment, pickled by cloudpickle."""
    columns: range
    spec: EnvironmentSpec
    layout: BufferLayout
    memory: int
    """File descriptor of the memory of the rollout buffer."""
    path: tuple[str, ...]
    """``sys.path`` for the user's modules, set after proximo's modules are imported."""

    def serve(self, commands: int, replies: int) -> None:
        """Make the environments and execute commands."""
        sys.path[:] = self.path
        try:
            buffer = self.layout.buffer(mmap.mmap(self.memory, self.layout.size))
            stepper = Stepper(pickle.loads(self.factory), self.columns, self.spec)
        except BaseException as error:
            _send_fault(replies, error)
            return
        messages.write_all(replies, messages.DONE)
        while True:
            _poll_for_command(commands)
            command, row = messages.COMMAND.unpack(messages.read_exactly(commands, messages.COMMAND.size))
            reply = messages.DONE
            try:
                if command == messages.CLOSE:
                    stepper.close()
                    return
                if command == messages.RESET:
                    stepper.reset(buffer, row, *messages.read_object(commands))
                elif stepper.step(buffer, row):
                    reply = messages.TRUNCATED
            except BaseException as error:
                _send_fault(replies, error)
            else:
                messages.write_all(replies, reply)


def main(lifeline: int) -> None:
    """Run the setup that standard input brings, until the parent closes the pipes or ends. ``lifeline`` is the file
    descriptor of a pipe that ends with the parent; -1 on Windows."""
    # Environments read nothing, and print to standard error.
    commands, replies = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    faulthandler.enable()  # a crash in an environment's native code shows where
    for number in (signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
        signal.signal(number, signal.SIG_IGN)  # the parent receives the signal too, and decides
    _die_with_parent(lifeline)
    with contextlib.suppress(EOFError, BrokenPipeError):  # the parent has ended
        messages.read_object(commands).serve(commands, replies)
    # Threads, exit handlers and child processes of an environment must not outlive the worker.
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _poll_for_command(commands: int) -> None:
    """Poll for the next command for a short time, and yield the core to other processes meanwhile: sleeping and
    waking up takes longer than a step of a small environment (docs/decisions/0006-gymnasium-collector.md)."""
    if not hasattr(os, "sched_yield"):
        return
    poll, until = select.poll(), time.perf_counter() + AWAKE_SECONDS
    poll.register(commands, select.POLLIN)
    while not poll.poll(0) and time.perf_counter() < until:
        os.sched_yield()


def _send_fault(replies: int, error: BaseException) -> None:
    """Send the exception, or its message if it cannot be pickled."""
    messages.write_all(replies, messages.FAULT)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(exception_text(error))
    messages.write_object(replies, error)


def _die_with_parent(lifeline: int) -> None:
    """End this process group, with the processes of environments, when the pipe ``lifeline`` ends with the parent.

    On Linux the kernel kills the group, even if an environment hangs in native code that holds the GIL, which blocks the thread of other
    systems.
    """
    if lifeline < 0:  # Windows
        return
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        if hasattr(fcntl, "F_SETSIG"):
            fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)  # not SIGIO, which a simulator may ignore
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)

    def wait() -> None:
        poll = select.poll()
        poll.register(lifeline, 0)  # the end of a pipe is always reported
        poll.poll()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()
