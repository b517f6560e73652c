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
from typing import IO

from proximo.custom_code import exception_text
from proximo.envs.gymnasium.rollout_buffer import BufferLayout
from proximo.envs.gymnasium.stepper import EnvironmentSpec, Stepper
from proximo.envs.gymnasium.worker_process import COMMAND, DONE, FAULT, RESET, TRUNCATED, send

AWAKE_SECONDS = 200e-6
"""How long a worker polls for the next command before it sleeps."""


def serve(
    factory: bytes,
    columns: range,
    spec: EnvironmentSpec,
    layout: BufferLayout,
    memory: int,
    commands: IO[bytes],
    replies: IO[bytes],
) -> None:
    """Make the environments ``columns`` with a pickled function, and step them in the file ``memory`` until ``commands`` ends."""
    try:
        buffer = layout.buffer(mmap.mmap(memory, layout.size))
        stepper = Stepper(pickle.loads(factory), columns, spec)
    except BaseException as error:
        _send_fault(replies, error)
        return
    send(replies, DONE)
    while command := _next_command(commands):
        what, row = COMMAND.unpack(command)
        reply = DONE
        try:
            if what == RESET:
                stepper.reset(buffer, row, *pickle.load(commands))
            elif stepper.step(buffer, row):
                reply = TRUNCATED
        except BaseException as error:
            _send_fault(replies, error)
        else:
            send(replies, reply)
    stepper.close()


def main(lifeline: int) -> None:
    """Run the program that standard input brings, until the parent closes it or ends. ``lifeline`` is the file descriptor of a pipe that
    ends with the parent."""
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


def _next_command(commands: IO[bytes]) -> bytes:
    """Read a command; empty if there is no other. It polls for a short time, and yields the core to other processes meanwhile:
    sleeping and waking up takes longer than a step of a small environment (docs/decisions/0006-gymnasium-collector.md)."""
    poll, until = select.poll(), time.perf_counter() + AWAKE_SECONDS
    poll.register(commands, select.POLLIN)
    while not poll.poll(0) and time.perf_counter() < until:
        os.sched_yield()
    return commands.read(COMMAND.size)


def _send_fault(replies: IO[bytes], error: BaseException) -> None:
    """Send the exception, or its message if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(exception_text(error))
    send(replies, FAULT, error)


def _die_with_parent(lifeline: int) -> None:
    """End this process group, with the processes of environments, when the pipe ``lifeline`` ends with the parent.

    On Linux the kernel kills the group, even if an environment hangs in native code that holds the GIL, which blocks the thread of other
    systems.
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
