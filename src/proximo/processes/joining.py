"""Connects this process to the others of a training."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from proximo.errors import ConfigError
from proximo.jax_setup import forget_core_devices, prepare_jax, schedule_as_batch
from proximo.processes import peers
from proximo.processes.coordination import Cluster, connect, connect_devices, detected
from proximo.processes.peers import Peers
from proximo.processes.variables import COORDINATOR, HEARTBEAT, LAUNCHER, NUM_PROCESSES, PROCESS_ID

HEARTBEAT_SECONDS = 100.0
START_SECONDS = 300.0


def join(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    heartbeat: float | None = None,
    start_timeout: float = START_SECONDS,
) -> Peers:
    """Connect this process to the others, before the first computation. ``proximo.train`` and ``proximo.resume`` then train on the
    devices of all processes. The command line calls this function for ``--distributed``. On Linux, it also selects the scheduling policy
    ``SCHED_BATCH`` for this process, unless the user has chosen another.

        proximo.processes.join("10.0.0.1:1234", num_processes=2, process_id=0)
        proximo.train("gymnax:CartPole-v1", num_envs=2048)

    Args:
        coordinator: ``HOST:PORT`` of process 0, with a free port. Process 0 listens on this address alone; the variable
            ``JAX_COORDINATOR_BIND_ADDRESS`` changes that.
        num_processes: how many processes train together.
        process_id: number of this process, 0 to ``num_processes - 1``.
        heartbeat: seconds after which a process that does not answer, or does not go on while others wait for it, ends the run (100).
        start_timeout: seconds in which all processes must start. Otherwise JAX ends this process, with exit code 2.

    Returns:
        The processes. What is not given is read from ``proximo launch`` or ``torchrun``, or detected by JAX (SLURM, Open MPI, Kubernetes,
        TPU).

    Raises:
        ConfigError: no cluster was detected, a value is invalid, JAX has already started, or the address cannot be used.
    """
    if peers.current().count > 1:
        raise ConfigError("This process has joined others already: call join once.")
    cluster = find_cluster(coordinator, num_processes, process_id)
    heartbeat = float(os.environ.get(HEARTBEAT, HEARTBEAT_SECONDS)) if heartbeat is None else heartbeat
    for name, seconds in (("heartbeat", heartbeat), ("start_timeout", start_timeout)):
        if not isinstance(seconds, int | float) or not 1 <= seconds <= 86_400:
            raise ConfigError(f"{name} = {seconds!r}: expected a number, 1 to 86400 seconds.")
    failure = (
        f"process {cluster.process_id} of {cluster.num_processes} could not join the others at {cluster.coordinator} within "
        f"{start_timeout:g} s: start all {cluster.num_processes} processes within that time, each with its own process id of "
        f"0 to {cluster.num_processes - 1} and the same coordinator, which process 0 must be able to listen on."
    )
    schedule_as_batch()
    forget_core_devices()
    try:
        connect(cluster, heartbeat, start_timeout, failure)
    except (RuntimeError, OSError) as error:
        reason = str(getattr(error, "strerror", error)).split("\n")[0]
        if "before" in reason:
            raise ConfigError("JAX has started before the processes joined: call proximo.processes.join first.") from error
        raise ConfigError(
            f"process {cluster.process_id} cannot use the address {cluster.coordinator} ({reason}): the coordinator is an address of the machine "
            "of process 0, with a free port."
        ) from error
    flags = ()
    if coordinator is not None:
        flags = ("--coordinator", coordinator, "--num-processes", cluster.num_processes, "--process-id", cluster.process_id)
    launcher = int(os.environ[LAUNCHER]) if LAUNCHER in os.environ else None
    joined = peers.start(cluster.process_id, cluster.num_processes, heartbeat, start_timeout, launcher, tuple(map(str, flags)))
    prepare_jax()
    connect_devices()
    return joined


def find_cluster(coordinator: str | None, num_processes: int | None, process_id: int | None) -> Cluster:
    """The cluster of this process, from the arguments, the variables of launchers, or JAX's detection. Raises ``ConfigError``."""
    if coordinator is not None and num_processes is not None and process_id is not None:
        cluster = Cluster(coordinator, num_processes, process_id)
    elif coordinator is num_processes is process_id is None:
        cluster = _from_variables(os.environ) or detected()
    else:
        raise ConfigError(
            "coordinator, num_processes and process_id belong together: give --coordinator HOST:PORT --num-processes N --process-id I to each "
            "process, or none of them where a cluster is detected."
        )
    if cluster is None:
        raise ConfigError(
            "no cluster was detected (SLURM, Open MPI, Kubernetes, TPU or torchrun): give --coordinator HOST:PORT --num-processes N "
            "--process-id I to each process, or start all on this machine with `proximo launch -n N -- train …`."
        )
    address = re.fullmatch(r".+:(\d{1,5})", str(cluster.coordinator))
    if address is None or int(address[1]) > 65_535:
        raise ConfigError(f"coordinator = {cluster.coordinator!r}: expected HOST:PORT, for example 10.0.0.1:1234.")
    for name, number in (("num_processes", cluster.num_processes), ("process_id", cluster.process_id)):
        if not isinstance(number, int):
            raise ConfigError(f"{name} = {number!r}: expected a whole number, for example int(os.environ['RANK']).")
    if not 0 <= cluster.process_id < cluster.num_processes:
        raise ConfigError(
            f"process_id = {cluster.process_id} of num_processes = {cluster.num_processes}: expected 0 to num_processes - 1."
        )
    return cluster


def _from_variables(variables: Mapping[str, str]) -> Cluster | None:
    """The cluster that ``proximo launch`` or ``torchrun`` describes; None if neither has started this process."""
    if COORDINATOR in variables:
        number = int(variables[PROCESS_ID])
        return Cluster(variables[COORDINATOR], int(variables[NUM_PROCESSES]), number, [number])
    if "TORCHELASTIC_RUN_ID" in variables:
        # torchrun itself listens on MASTER_PORT.
        address = f"{variables['MASTER_ADDR']}:{int(variables['MASTER_PORT']) + 1}"
        return Cluster(address, int(variables["WORLD_SIZE"]), int(variables["RANK"]), [int(variables["LOCAL_RANK"])])
    return None
