"""Runs small programs on one core of a CPU: passing operations of a few microseconds to other cores takes longer than it saves."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

FEW_OPERATIONS = 8e7
"""A program with fewer floating-point operations is faster on one core. Those of a loop are counted once. A gradient step with 1,024 samples
and two towers of 64 × 64 has 6e7, and one with 2,048 samples 1.2e8 (docs/decisions/0003-speed-on-the-cpu.md)."""
THREAD_NAME = "XLAEigen"
_lock = threading.Lock()
_calls = 0


def is_small(program: Any) -> bool:
    """Whether a compiled JAX program computes on a CPU, on its only device, with ``FEW_OPERATIONS``."""
    if jax.default_backend() != "cpu" or jax.device_count() > 1:
        return False
    return (program.cost_analysis() or {}).get("flops", math.inf) < FEW_OPERATIONS


def on_one_core(program: Callable[..., Any]) -> Callable[..., Any]:
    """``program``, during whose calls the threads of XLA's CPU runtime run on the core that the calling thread runs on.

    The calling thread itself is not bound. So the system gives trainings in several processes different cores, and each of them chooses its
    core anew at every call. Calls from several threads of one process at the same time use all cores. Nothing changes where the system has no
    ``sched_setaffinity``.
    """

    def run(*arguments: Any) -> Any:
        with _together():
            return jax.block_until_ready(program(*arguments))  # it may compute in another thread

    return run


@contextlib.contextmanager
def _together() -> Iterator[None]:
    global _calls
    core = _current_core()
    with _lock:
        _calls += 1
        if _calls == 1 and core is not None:
            _bind(core)
        else:
            _release()
    try:
        yield
    finally:
        with _lock:
            _calls -= 1
            _release()


def _bind(core: int) -> None:
    for thread, allowed in _xla_threads().items():
        if core in allowed:
            _set_cores(thread, {core})


def _release() -> None:
    for thread, allowed in _xla_threads().items():
        _set_cores(thread, allowed)


def _set_cores(thread: int, cores: set[int]) -> None:
    with contextlib.suppress(OSError):  # the thread has ended, or the system forbids it
        os.sched_setaffinity(thread, cores)


@functools.cache
def _xla_threads() -> dict[int, set[int]]:
    """The identifiers of the threads of XLA's CPU runtime, with the cores that each may run on. They start with JAX and last as long as the process."""
    found: dict[int, set[int]] = {}
    if hasattr(os, "sched_setaffinity"):
        for folder in Path("/proc/self/task").glob("*"):
            with contextlib.suppress(OSError):  # another thread has ended
                if THREAD_NAME in (folder / "comm").read_text():
                    found[int(folder.name)] = os.sched_getaffinity(int(folder.name))
    return found


@functools.cache
def _sched_getcpu() -> Any:
    return getattr(ctypes.CDLL(None), "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None


def _current_core() -> int | None:
    """The core that the calling thread runs on; None if the system does not tell."""
    function = _sched_getcpu()
    core = -1 if function is None else function()
    return None if core < 0 else core
