"""JAX's coordination service. This is the only module that uses private functions of JAX for several processes.

They are imported where they are used, so that a training in one process does not depend on them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
from jax.experimental import multihost_utils

MARGIN_SECONDS = 15
"""JAX's heartbeat is longer than ours by this time, so that our watchdog reports first."""
SHUTDOWN_SECONDS = 15
DETECTION_SECONDS = 60
"""How long JAX may look for process 0 in a cluster that it detects."""


class Cluster(NamedTuple):
    """How a process finds the others."""

    coordinator: str
    """``HOST:PORT`` of process 0."""
    num_processes: int
    process_id: int
    device_ids: list[int] | None = None
    """The GPUs of this machine that the process uses; None: all."""


def detected() -> Cluster | None:
    """The cluster that JAX detects (SLURM, Open MPI, Kubernetes, TPU); None if it detects none."""
    from jax._src.clusters import ClusterEnv

    if not any(not kind.opt_in_only_method and kind.is_env_present() for kind in ClusterEnv._cluster_types):
        return None
    return Cluster(*ClusterEnv.auto_detect_unset_distributed_params(None, None, None, None, None, DETECTION_SECONDS))  # pyright: ignore[reportArgumentType]


def connect(cluster: Cluster, heartbeat: float, start_timeout: float, failure: str) -> Any:
    """Connect to the other processes, and return the client of the service, which process 0 starts. If they do not all connect within
    ``start_timeout`` seconds, JAX ends the process, which then prints ``failure`` and exits with 2. Raises ``RuntimeError`` if JAX has
    already started, or ``OSError`` or ``RuntimeError`` if the address cannot be used."""
    from jax._src import distributed

    # One handler of SIGTERM: ours, which makes all processes save the same step.
    jax.config.update("jax_enable_preemption_service", False)
    bind = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", cluster.coordinator)  # JAX's default is all interfaces
    if cluster.process_id == 0:
        _check_address(bind)
    with _silenced(2) as terminal:  # JAX prints a stack trace before it aborts
        set_last_words(failure, 2, terminal)
        jax.distributed.initialize(
            *cluster,
            cluster_detection_method="deactivate",
            initialization_timeout=max(1, round(start_timeout)),
            heartbeat_timeout_seconds=round(heartbeat) + MARGIN_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
            coordinator_bind_address=bind,
        )
    return distributed.global_state.client


def _check_address(address: str) -> None:
    """Raise ``OSError`` if this process cannot listen at ``HOST:PORT``. JAX would crash, or share the port with another program."""
    host, _, port = address.rpartition(":")
    family, *_, name = min(socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM))  # IPv4 if the host has it
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended do not matter
        probe.bind(name)


def connect_devices() -> None:
    """Connect the devices of all processes, which otherwise happens in their first communication. Gloo writes a line about it to standard
    output, which may be read as JSON."""
    with _silenced(1):
        multihost_utils.sync_global_devices("proximo")


@contextlib.contextmanager
def _silenced(descriptor: int) -> Iterator[int]:
    """Context manager: drop what C++ code writes to standard output (1) or standard error (2). Yields another descriptor of its file."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.dup(descriptor)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), descriptor)
        yield file
    finally:
        os.dup2(file, descriptor)
        os.close(file)


def disconnect() -> None:
    """Leave the service, and wait until all processes do. Otherwise Python's exit would wait for processes that have ended."""
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        jax.distributed.shutdown()


def abandon() -> None:
    """Never disconnect: Python's exit would wait for processes that have ended, and JAX would abort."""
    from jax._src import distributed

    state = distributed.global_state
    for left in (state.client, state.service):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(left))  # freeing them disconnects, too
    state.client = state.service = None


_last_words = ("", 1, 2)


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _speak(_number: int) -> None:
    """The handler of SIGABRT in C. Python's own handlers do not run during an abort."""
    message, code, descriptor = _last_words
    try:
        os.write(descriptor, f"proximo: {message}\n".encode())
    finally:
        os._exit(code)


def set_last_words(message: str, code: int = 1, descriptor: int = 2) -> None:
    """If JAX aborts the process from now on, write ``message`` to the file ``descriptor`` and exit with ``code``. JAX aborts from C++ if a
    process cannot join, or if process 0 is lost."""
    global _last_words
    _last_words = message, code, descriptor
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    set_handler(signal.SIGABRT, ctypes.cast(_speak, ctypes.c_void_p))
