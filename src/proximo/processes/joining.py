"""Connects this process to the others of a training, through JAX's coordination service."""

import os
import re
import socket
from typing import Any, NamedTuple

import jax
from jax.experimental import multihost_utils

from proximo.errors import ConfigError
from proximo.jax_setup import forget_core_devices, prepare_jax, schedule_as_batch
from proximo.processes.peers import HEARTBEAT_SECONDS, Peers, current, set_last_words, use
from proximo.streams import redirected

MARGIN_SECONDS = 15
"""JAX's heartbeat is longer than ours by this time, so that our watchdog reports first."""
SHUTDOWN_SECONDS = 15
DETECTION_SECONDS = 60
"""How long JAX may look for process 0 in a cluster that it detects."""


class Cluster(NamedTuple):
    """How a process finds the others. It uses the GPUs ``device_ids`` of its machine; None: all."""

    coordinator: str
    num_processes: int
    process_id: int
    device_ids: list[int] | None = None


def join(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    heartbeat: float | None = None,
    start_timeout: float = 300.0,
) -> Peers:
    """Connect this process to the others, before the first computation. ``proximo.train`` and ``proximo.resume`` then
    train on the devices of all processes, as ``--distributed`` does on the command line. On Linux, this also selects
    the scheduling policy ``SCHED_BATCH`` for this process, unless the user has chosen another.

        proximo.processes.join("10.0.0.1:1234", num_processes=2, process_id=0)
        proximo.train("gymnax:CartPole-v1", num_envs=2048)

    Args:
        coordinator: ``HOST:PORT`` of process 0, with a free port. Process 0 listens on this address, or on
            ``JAX_COORDINATOR_BIND_ADDRESS``.
        num_processes: how many processes train together.
        process_id: number of this process, 0 to ``num_processes - 1``.
        heartbeat: seconds (100) after which a process is lost that does not answer, or is idle while others wait.
        start_timeout: seconds in which all must start. Otherwise JAX ends this process, with exit code 2.

    Returns:
        The processes. What is not given comes from a launcher, or is detected by JAX (SLURM, Open MPI, Kubernetes, TPU).

    Raises:
        ConfigError: no cluster was detected, a value or the address is invalid, or JAX has already started.
    """
    if current().count > 1:
        raise ConfigError("This process has joined others already: call join once.")
    cluster = find_cluster(coordinator, num_processes, process_id)
    heartbeat = HEARTBEAT_SECONDS if heartbeat is None else heartbeat
    if not (1 <= heartbeat <= 86_400 and 1 <= start_timeout <= 86_400):
        raise ConfigError(f"heartbeat = {heartbeat}, start_timeout = {start_timeout}: expected 1 to 86400 seconds.")
    schedule_as_batch()
    forget_core_devices()
    try:
        client = _connect(cluster, heartbeat, start_timeout)
    except (RuntimeError, OSError, ValueError, OverflowError) as error:
        reason = str(getattr(error, "strerror", error)).split("\n")[0]
        if "before" in reason:
            raise ConfigError("JAX has started before the processes joined: call proximo.processes.join first.") from error
        raise ConfigError(
            f"process {cluster.process_id} cannot use the address {cluster.coordinator} ({reason}): expected HOST:PORT of the "
            "machine of process 0, with a free port."
        ) from error
    peers = use(Peers(cluster.process_id, cluster.num_processes, client, heartbeat))
    prepare_jax()
    # Gloo reports that it connects on standard output, which may be read as JSON.
    with open(os.devnull, "wb") as nothing, redirected(1, nothing.fileno()):
        multihost_utils.sync_global_devices("proximo")
    return peers


def find_cluster(coordinator: str | None, num_processes: int | None, process_id: int | None) -> Cluster:
    """The cluster of this process: given, of a launcher, or detected by JAX. Raises ``ConfigError``."""
    cluster = None
    if coordinator is not None and num_processes is not None and process_id is not None:
        cluster = Cluster(coordinator, num_processes, process_id)
    elif coordinator is num_processes is process_id is None:
        cluster = _detected()
    if cluster is None:
        raise ConfigError(
            "no cluster was detected (SLURM, Open MPI, Kubernetes, TPU or torchrun): give --coordinator HOST:PORT --num-processes N "
            "--process-id I to each process, all three, or start all on this machine with `proximo launch -n N -- train …`."
        )
    port = re.fullmatch(r".+:(\d{1,5})", str(cluster.coordinator))
    if port is None or int(port[1]) > 65_535:
        raise ConfigError(f"coordinator = {cluster.coordinator!r}: expected HOST:PORT, for example 10.0.0.1:1234.")
    if not 0 <= cluster.process_id < cluster.num_processes:
        raise ConfigError(f"process_id = {cluster.process_id}: expected 0 to {cluster.num_processes - 1} (num_processes - 1).")
    return cluster


def _detected() -> Cluster | None:
    """The cluster that ``torchrun`` or ``proximo launch`` describes, or that JAX detects; None without one."""
    from jax._src.clusters import ClusterEnv  # private: imported where it is needed, as in all of this folder

    variables = os.environ
    if "TORCHELASTIC_RUN_ID" in variables:  # torchrun itself listens on MASTER_PORT
        address = f"{variables['MASTER_ADDR']}:{int(variables['MASTER_PORT']) + 1}"
        return Cluster(address, int(variables["WORLD_SIZE"]), int(variables["RANK"]), [int(variables["LOCAL_RANK"])])
    if not any(not kind.opt_in_only_method and kind.is_env_present() for kind in ClusterEnv._cluster_types):
        return None
    found: Any = ClusterEnv.auto_detect_unset_distributed_params(None, None, None, None, None, DETECTION_SECONDS)
    return Cluster(*found)


def _connect(cluster: Cluster, heartbeat: float, start_timeout: float) -> Any:
    """Connect to the others, and return the client of the service, which process 0 starts. If they do not all connect
    in time, JAX ends the process. Raises if JAX has already started, or if the address cannot be used."""
    from jax._src import distributed

    address, count, index, _ = cluster
    # One handler of SIGTERM: ours, which makes all processes save the same step.
    jax.config.update("jax_enable_preemption_service", False)
    bind = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", address)  # JAX's default is all interfaces
    if index == 0:  # if the port is taken, JAX would crash, or share it with another program
        host, _, port = bind.rpartition(":")
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, *_, name = min(found)  # IPv4 if the host has it
        socket.create_server(name[:2], family=family).close()
    # JAX prints a stack trace before it aborts.
    with open(os.devnull, "wb") as nothing, redirected(2, nothing.fileno()) as terminal:
        set_last_words(
            f"process {index} of {count} could not join the others at {address} within {start_timeout:g} s: start all {count} processes within "
            f"that time, each with its own process id of 0 to {count - 1} and the same coordinator, which process 0 must be able to listen on.",
            2,
            terminal,
        )
        jax.distributed.initialize(
            *cluster,
            cluster_detection_method="deactivate",
            initialization_timeout=max(1, round(start_timeout)),
            heartbeat_timeout_seconds=round(heartbeat) + MARGIN_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
            coordinator_bind_address=bind,
        )
    return distributed.global_state.client
