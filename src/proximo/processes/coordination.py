"""JAX's coordination service. This is the only module that uses private functions of JAX for several processes.

They are imported where they are used, so that a training in one process does not depend on them.

JAX ends a process from C++ (``abort``) if it cannot join, or if process 0 is lost. ``set_last_words`` makes such an end print a sentence.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
from jax.experimental import multihost_utils

MARGIN_SECONDS = 15
"""JAX's heartbeat is longer than ours by this time, so that our watchdog reports first."""
SHUTDOWN_SECONDS = 15
DETECTION_SECONDS = 60
"""How long JAX may look for process 0 in a cluster that it detects."""


@dataclass(frozen=True)
class Cluster:
    """How a process finds the others."""

    coordinator: str
    """``HOST:PORT`` of process 0."""
    num_processes: int
    process_id: int
    device_ids: list[int] | None = None
    """The GPUs of this machine that the process uses; None: all, or those that JAX chooses."""


def detected() -> Cluster | None:
    """The cluster that JAX detects (SLURM, Open MPI, Kubernetes, TPU); None if it detects none."""
    from jax._src import clusters

    kinds = clusters.ClusterEnv._cluster_types
    if not any(not kind.opt_in_only_method and kind.is_env_present() for kind in kinds):
        return None
    found: Any = clusters.ClusterEnv.auto_detect_unset_distributed_params(None, None, None, None, None, DETECTION_SECONDS)
    address, count, index, device_ids = found
    return Cluster(address, count, index, None if device_ids is None else list(device_ids))


def connect(cluster: Cluster, heartbeat: float, start_timeout: float, failure: str) -> None:
    """Connect to the other processes; process 0 starts the service. If they do not all connect within ``start_timeout`` seconds, JAX ends
    the process; it then prints ``failure`` and exits with 2. Raises ``RuntimeError`` if JAX has already started, or ``OSError`` or
    ``RuntimeError`` if the address cannot be used."""
    # One handler of SIGTERM: ours, which makes all processes save the same step.
    jax.config.update("jax_enable_preemption_service", False)
    bind = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", cluster.coordinator)  # JAX's default is all interfaces
    if cluster.process_id == 0:
        _check_address(bind)
    with _stderr_of_start():
        set_last_words(failure, code=2)
        jax.distributed.initialize(
            cluster.coordinator,
            cluster.num_processes,
            cluster.process_id,
            cluster.device_ids,
            cluster_detection_method="deactivate",
            initialization_timeout=max(1, round(start_timeout)),
            heartbeat_timeout_seconds=round(heartbeat) + MARGIN_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
            coordinator_bind_address=bind,
        )


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
    sys.stdout.flush()
    terminal = os.dup(1)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 1)
        multihost_utils.sync_global_devices("proximo")
    finally:
        os.dup2(terminal, 1)
        os.close(terminal)


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


class Store:
    """The key-value store of the service, which all processes share."""

    def __init__(self) -> None:
        from jax._src import distributed

        self._client: Any = distributed.global_state.client

    def set(self, key: str, value: str) -> None:
        """Set or replace a value."""
        self._client.key_value_set(key, value, allow_overwrite=True)

    def get(self, key: str, seconds: float) -> str | None:
        """The value; None if no process sets it within ``seconds``."""
        try:
            return self._client.blocking_key_value_get(key, int(1000 * seconds))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                time.sleep(seconds)  # the service does not answer: the watchdog decides what that means
            return None

    def folder(self, name: str) -> dict[str, str]:
        """All values whose key begins with ``name/``, by the rest of the key."""
        return {key.removeprefix(f"{name}/"): value for key, value in self._client.key_value_dir_get(f"{name}/")}

    def delete(self, key: str) -> None:
        """Remove a value."""
        self._client.key_value_delete(key)


_last_words = ("", 1)
_terminal = 2
"""The file descriptor of standard error, also while a file replaces it."""
START_TIMED_OUT = b"RegisterTask"
"""In what JAX prints if a process waits in vain for the others."""


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _speak(_number: int) -> None:
    """The handler of SIGABRT in C. Python's own handlers do not run during an abort."""
    message, code = _last_words
    try:
        if _terminal != 2 and START_TIMED_OUT not in (output := os.pread(2, 1 << 20, 0)):
            os.write(_terminal, output)
        os.write(_terminal, f"proximo: {message}\n".encode())
    finally:
        os._exit(code)


def set_last_words(message: str, code: int = 1) -> None:
    """If JAX aborts the process from now on, print ``message`` and exit with ``code``."""
    global _last_words
    _last_words = message, code
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    set_handler(signal.SIGABRT, ctypes.cast(_speak, ctypes.c_void_p))


@contextlib.contextmanager
def _stderr_of_start() -> Iterator[None]:
    """Context manager: standard error goes to a file, which is shown if the block fails. Where the last words say it all, the stack trace
    that JAX prints before it aborts is dropped. A crash is reported on standard error itself."""
    global _terminal
    sys.stderr.flush()
    was_enabled = faulthandler.is_enabled()
    with tempfile.TemporaryFile() as output:
        _terminal = os.dup(2)
        os.dup2(output.fileno(), 2)
    faulthandler.enable(_terminal)
    try:
        yield
    except BaseException:
        os.write(_terminal, os.pread(2, 1 << 20, 0))
        raise
    finally:
        os.dup2(_terminal, 2)
        faulthandler.enable(2) if was_enabled else faulthandler.disable()
        os.close(_terminal)
        _terminal = 2
