"""A worker process: a block of environments that steps on command. It never imports JAX, and never outlives its parent."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import threading
import time
from dataclasses import dataclass

from proximo.envs.host import wire
from proximo.envs.host.block import Block, Rules
from proximo.envs.host.sharing import Handle
from proximo.envs.host.slab import Layout

AWAKE_SECONDS = 200e-6


@dataclass(frozen=True)
class Setup:
    """All that a worker needs to begin."""

    factory: bytes
    """A cloudpickled function that makes one environment."""
    columns: range
    rules: Rules
    layout: Layout
    memory: Handle
    path: tuple[str, ...]
    """``sys.path`` for the user's modules, set after proximo's modules are imported."""


def main(lifeline: int) -> None:
    """Serve the parent at the other end of standard input and output, until it closes them or dies."""
    commands, replies = _claim_pipes()
    for number in (signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
        signal.signal(number, signal.SIG_IGN)  # a terminal tells the parent, which decides
    _die_with_parent(lifeline)
    try:
        setup: Setup = wire.read_object(commands)
        _serve(setup, commands, replies)
    except (EOFError, BrokenPipeError):
        pass  # the parent has gone
    # Threads, exit handlers and processes of an environment must not outlive a worker that nobody needs.
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _serve(setup: Setup, commands: int, replies: int) -> None:
    sys.path[:] = setup.path
    try:
        slabs = setup.layout.slabs(setup.memory.attach())
        block = Block(pickle.loads(setup.factory), setup.columns, setup.rules)
    except BaseException as error:
        _tell(replies, error)
        return
    wire.write_all(replies, wire.DONE)
    while True:
        _look_out(commands)
        command, slab, row = wire.COMMAND.unpack(wire.read_exactly(commands, wire.COMMAND.size))
        try:
            if command == wire.STEP:
                reply = wire.CUT if block.step(slabs[slab], row) else wire.DONE
            elif command == wire.RESET:
                block.reset(slabs[slab], row, *wire.read_object(commands))
                reply = wire.DONE
            else:
                block.close()
                return
        except BaseException as error:
            _tell(replies, error)
        else:
            wire.write_all(replies, reply)


def _look_out(commands: int) -> None:
    """Stay awake for what comes soon, and give the core to whoever wants it meanwhile: going to sleep and being woken takes
    longer than a step of a small environment (docs/decisions/0006-host-driver.md)."""
    if not hasattr(os, "sched_yield"):
        return
    poll, until = select.poll(), time.perf_counter() + AWAKE_SECONDS
    poll.register(commands, select.POLLIN)
    while not poll.poll(0) and time.perf_counter() < until:
        os.sched_yield()


def _tell(replies: int, error: BaseException) -> None:
    """Send the exception itself, or where it cannot be pickled its words."""
    wire.write_all(replies, wire.FAULT)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    wire.write_object(replies, error)


def _claim_pipes() -> tuple[int, int]:
    """Standard input and output for commands and replies alone: what an environment prints goes to standard error."""
    commands, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return commands, replies


def _die_with_parent(lifeline: int) -> None:
    """``lifeline`` is a pipe that ends when the parent does, in whatever way.

    On Linux the kernel then kills the process group, with all processes that an environment has started. This works even if an
    environment hangs in native code that holds the GIL. On other systems a thread does it, which such a hang blocks.
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
        poll.register(lifeline, 0)  # an end is always reported
        poll.poll()
        os.killpg(0, signal.SIGKILL)  # with all that an environment has started

    threading.Thread(target=wait, daemon=True).start()
