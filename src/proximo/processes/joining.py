"""Connects this process to the others of a training."""

from __future__ import annotations

import os
import re

from proximo.errors import ConfigError
from proximo.jax_setup import forget_core_devices, prepare_jax, schedule_as_batch
from proximo.processes.coordination import Cluster, connect, connect_devices, detected, set_last_words
from proximo.processes.peers import HEARTBEAT_SECONDS, Peers, current, use


def join(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    heartbeat: float | None = None,
    start_timeout: float = 300.0,
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
        heartbeat: seconds after which a process ends the run if it does not answer, or uses no CPU time while others wait for it (100).
        start_timeout: seconds in which all processes must start. Otherwise JAX ends this process, with exit code 2.

    Returns:
        The processes. What is not given is read from ``proximo launch`` or ``torchrun``, or detected by JAX (SLURM, Open MPI, Kubernetes,
        TPU).

    Raises:
        ConfigError: no cluster was detected, a value is invalid, JAX has already started, or the address cannot be used.
    """
    if current().count > 1:
        raise ConfigError("This process has joined others already: call join once.")
    cluster = find_cluster(coordinator, num_processes, process_id)
    address, count, index = cluster.coordinator, cluster.num_processes, cluster.process_id
    heartbeat = HEARTBEAT_SECONDS if heartbeat is None else heartbeat
    for name, seconds in (("heartbeat", heartbeat), ("start_timeout", start_timeout)):
        if not isinstance(seconds, int | float) or not 1 <= seconds <= 86_400:
            raise ConfigError(f"{name} = {seconds!r}: expected a number, 1 to 86400 seconds.")
    failure = (
        f"process {index} of {count} could not join the others at {address} within {start_timeout:g} s: start all {count} processes within "
        f"that time, each with its own process id of 0 to {count - 1} and the same coordinator, which process 0 must be able to listen on."
    )
    schedule_as_batch()
    forget_core_devices()
    try:
        client = connect(cluster, heartbeat, start_timeout, failure)
    except (RuntimeError, OSError) as error:
        reason = str(getattr(error, "strerror", error)).split("\n")[0]
        if "before" in reason:
            raise ConfigError("JAX has started before the processes joined: call proximo.processes.join first.") from error
        raise ConfigError(
            f"process {index} cannot use the address {address} ({reason}): the coordinator is an address of the machine of process 0, with a "
            "free port."
        ) from error
    set_last_words(f"process {index} ends, because process 0 has ended.")
    joined = use(Peers(index, count, client, heartbeat))
    prepare_jax()
    connect_devices()
    return joined


def find_cluster(coordinator: str | None, num_processes: int | None, process_id: int | None) -> Cluster:
    """The cluster of this process, from the arguments, the variables of launchers, or JAX's detection. Raises ``ConfigError``."""
    if coordinator is not None and num_processes is not None and process_id is not None:
        cluster = Cluster(coordinator, num_processes, process_id)
    elif coordinator is num_processes is process_id is None:
        cluster = _of_launcher() or detected()
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
    port = re.fullmatch(r".+:(\d{1,5})", str(cluster.coordinator))
    if port is None or int(port[1]) > 65_535:
        raise ConfigError(f"coordinator = {cluster.coordinator!r}: expected HOST:PORT, for example 10.0.0.1:1234.")
    count, index = cluster.num_processes, cluster.process_id
    if not (isinstance(count, int) and isinstance(index, int) and 0 <= index < count):
        raise ConfigError(f"process_id = {index!r} of num_processes = {count!r}: expected whole numbers, 0 to num_processes - 1.")
    return cluster


def _of_launcher() -> Cluster | None:
    """The cluster that ``torchrun`` describes, or ``proximo launch`` with the same variables; None if neither has started this process."""
    variables = os.environ
    if "TORCHELASTIC_RUN_ID" not in variables:
        return None
    # torchrun itself listens on MASTER_PORT.
    address = f"{variables['MASTER_ADDR']}:{int(variables['MASTER_PORT']) + 1}"
    return Cluster(address, int(variables["WORLD_SIZE"]), int(variables["RANK"]), [int(variables["LOCAL_RANK"])])
