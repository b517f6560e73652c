"""The connection of this process to Ray, which is imported when it is used."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import warnings
from concurrent.futures import Future
from importlib.util import find_spec
from typing import Any

from proximo.errors import ConfigError, lacking

CONNECT_SECONDS = 5.0


def check_installed() -> None:
    """Raise ``EnvError`` if Ray is not installed."""
    if find_spec("ray") is None:  # not imported here: it reads variables that ``connect`` sets
        raise lacking("actors (Ray)", "ray")


def connect() -> Any:
    """Connect this process to Ray, unless it is connected: to the cluster at ``RAY_ADDRESS`` or, without this
    variable, to the one that runs on this machine. ``local`` starts Ray on this machine. Returns the module ``ray``.
    Raises ``EnvError`` if it is not installed, and ``ConfigError`` if no cluster answers or Ray cannot start."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no statistics of use are sent
    check_installed()
    address = os.environ.get("RAY_ADDRESS") or "auto"
    if address == "local":  # no other machine takes part: have Ray listen on loopback, as it does on Windows
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray  # pyright: ignore[reportMissingImports]

    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    options["job_config"] = job = ray.job_config.JobConfig()
    job._runtime_env_has_working_dir = lambda: True  # Ray would put the working folder first in an actor's path
    connecting: Future[None] = Future()

    def work() -> None:
        try:
            if address not in ("auto", "local"):  # Ray itself would try for minutes and end the process
                if (head := re.fullmatch(r"([^\s:/]+):(\d+)", address)) is None:
                    raise ValueError("expected local, or HOST:PORT of its head")
                socket.create_connection((head[1], int(head[2])), CONNECT_SECONDS).close()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", r"os\.fork\(\) was called")  # Ray executes another program at once
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
            connecting.set_result(None)
        except BaseException as error:
            connecting.set_exception(error)
        else:
            threading.Event().wait()

    # On Linux, Ray ends with the thread that started it. In the main thread, it would replace signal handlers.
    threading.Thread(target=work, daemon=True).start()
    try:
        connecting.result()
    except (Exception, SystemExit) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split()).split(". ")[0].rstrip(".")
        if address == "local":
            raise ConfigError(f"RAY_ADDRESS = local: Ray cannot start on this machine ({reason}).") from error
        where = "on this machine" if address == "auto" else f"at RAY_ADDRESS = {address}"
        raise ConfigError(
            f"no Ray cluster answers {where} ({reason}): start its head with `ray start --head`, which shows its address "
            "HOST:PORT, or set RAY_ADDRESS=local to start Ray on this machine for this training."
        ) from error
    return ray
