"""The connection to Ray, and Ray actors. Each actor collects rollouts of a part of the environments. Ray is imported when it is used."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
import socket
import sys
import threading
import time
import warnings
from concurrent.futures import Future
from importlib.util import find_spec
from typing import Any, NamedTuple

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np

from proximo import __version__
from proximo.collect.episode_tally import Episode
from proximo.collect.gymnasium_collector import GymnasiumCollector
from proximo.collect.gymnasium_rollout import GymnasiumRollout
from proximo.collect.rollout_in_progress import Timing
from proximo.config import Config, override
from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.vector_environment import AUTO, RESETS, split
from proximo.envs.gymnasium.waiting_messages import reports_waiting
from proximo.envs.gymnasium.worker_process import search_path
from proximo.errors import ConfigError, EnvError, EnvironmentFault, lacking
from proximo.jax_setup import prepare_jax
from proximo.types import GymnasiumCollectorState

CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 1.0


class RolloutPart(NamedTuple):
    """What an actor returns."""

    rollout: GymnasiumRollout
    """Of the actor's environments, without the policy."""
    finished: list[Episode]
    timing: Timing
    restarts: int
    """Workers of the actor that were lost and restarted so far."""
    warnings: list[str]


class RolloutActor:
    """A ``GymnasiumCollector`` of the environments with the numbers ``part``, in a process of Ray.

    ``pickled`` is the pair of configuration and environment, ``path`` is the learner's ``sys.path``, and ``version`` its proximo.
    """

    def __init__(self, pickled: bytes, path: tuple[str, ...], part: range, version: str):
        self._made_with = pickled, path, part, version
        self._collector: GymnasiumCollector | None = None
        self._warnings: list[str] = []
        self._timing = Timing()  # of the rollout that is collected now: it grows with each step

    def _open(self) -> GymnasiumCollector:
        """The collector, made by the first call: Ray reports an exception of the constructor without its cause."""
        if self._collector is None:
            pickled, path, part, version = self._made_with
            here = f"the machine {socket.gethostname()} of the Ray cluster"
            if version != __version__:
                raise EnvError(
                    f"On {here}, proximo is {__version__}, and the learner's is {version}: install the same version on all machines."
                )
            prepare_jax()
            sys.path.extend(entry for entry in path if entry not in sys.path)
            with custom_code_errors(f"Importing the environment on {here}"):
                config, env = cloudpickle.loads(pickled)
            self._collector = GymnasiumCollector(config, env, part=part)
            self._collector.environments.warn = self._warnings.append
        return self._collector

    def run(self, policy: list[np.ndarray], key: np.ndarray, begins: bool | None) -> RolloutPart:
        """Collect a rollout of the policy with these arrays. If ``begins`` is true, all environments start new episodes. If it is None, make
        the environments, compile, and return a rollout with the right shapes and arbitrary numbers."""
        collector, self._timing = self._open(), Timing()
        actor_critic = collector.programs.policy_of(policy)
        state = GymnasiumCollectorState(jax.random.wrap_key_data(jnp.asarray(key)))
        if begins:
            collector.begin()
        if begins is None:
            rollout = collector.compile(actor_critic, state)
        else:
            rollout = collector.collect(actor_critic, state, self._timing)[1]
        messages, self._warnings[:] = list(self._warnings), []
        arrays = jax.device_get(dataclasses.replace(rollout, policy=()))
        return RolloutPart(arrays, collector.episodes.finished, self._timing, collector.environments.restarts, messages)

    def close(self) -> None:
        """End the environments and their processes."""
        if self._collector is not None:
            self._collector.environments.close()

    def progress(self) -> float | None:
        """A number that grows with each step of environments in this process; 0.0 before the first. None if workers, which have time limits
        themselves, step them."""
        vector_env = self._collector and self._collector.environments.vector_env
        return None if vector_env is None or vector_env.num_workers else self._timing.environment


class _Actor:
    """An actor as the learner sees it."""

    def __init__(self, handle: Any):
        self.handle, self.started = handle, time.monotonic()
        self.has_answered = False
        """Whether it has returned anything so far."""
        self.progress: float | None = None
        self.restarts = 0
        """Its workers that were restarted so far."""
        self.why_killed = ""


class RolloutActors:
    """Starts ``actors`` Ray actors when they are first needed, calls all of them at once, and replaces those that die.

    Warnings go to ``warn``, which may be set at any time. After ``max_restarts`` restarts, the next one raises ``EnvironmentFault``.
    """

    def __init__(self, config: Config, env: GymnasiumEnvironment):
        self.config, self.env = config, env
        self.parts = split(range(config.env.num_envs), config.env.actors)
        self.restarts = 0
        """Actors and their workers that were lost and started again so far."""
        self.warn: Any = lambda message: None
        self._actors: list[_Actor] = []
        self._pickled = b""

    def call(self, policy: list[np.ndarray], *arguments: Any) -> list[RolloutPart | None]:
        """Call ``run`` of all actors. Returns their parts in order; None for an actor that was lost and is replaced.

        Raises:
            EnvError, EnvironmentFault: an environment failed, or actors were lost too often.
        """
        if not self._actors:
            connect()
            self._pickled = pickled(self.config, self.env)
            self._actors = [self._start(part) for part in self.parts]
        import ray  # pyright: ignore[reportMissingImports]

        stored = ray.put(policy)
        starting = sum(len(part) for part, actor in zip(self.parts, self._actors, strict=True) if not actor.has_answered)
        calls = [actor.handle.run.remote(stored, *arguments) for actor in self._actors]
        limit = RESETS * self.config.env.worker_settings.step_timeout
        with reports_waiting(self.warn, starting, self.env.id, limit) if starting else contextlib.nullcontext():
            self._wait(calls)
        parts = [self._result(i, call) for i, call in enumerate(calls)]
        for message in (message for part in parts if part for message in part.warnings):
            self.warn(message)
        self._check_restarts("Workers of the Ray actors ended")
        return parts

    def _wait(self, calls: list[Any]) -> None:
        """Wait until all calls have ended. An actor that does not start in time, does not answer, or takes no step, is killed."""
        import ray  # pyright: ignore[reportMissingImports]

        step_timeout, began = self.config.env.worker_settings.step_timeout, time.monotonic()
        reset_timeout = RESETS * step_timeout
        for actor in self._actors:
            actor.progress = None
        while pending := ray.wait(calls, num_returns=len(calls), timeout=step_timeout)[1]:
            late = [self._actors[calls.index(call)] for call in pending]
            pings = [actor.handle.progress.options(concurrency_group="health").remote() for actor in late]
            answered = ray.wait(pings, num_returns=len(pings), timeout=step_timeout)[0]
            now = time.monotonic()
            for actor, ping in zip(late, pings, strict=True):
                if not actor.has_answered:
                    if now - actor.started > reset_timeout:
                        actor.why_killed = f"did not start within {reset_timeout:g} s (ten times step_timeout)"
                elif ping not in answered:
                    actor.why_killed = f"did not answer for more than {step_timeout:g} s (step_timeout)"
                else:
                    with contextlib.suppress(ray.exceptions.RayError):  # it has ended
                        before, actor.progress = actor.progress, ray.get(ping)
                        name, seconds = ("step_timeout", step_timeout) if before else ("ten times step_timeout", reset_timeout)
                        if before is not None and before == actor.progress and now - began > seconds:
                            actor.why_killed = f"took no step for more than {seconds:g} s ({name})"
                if actor.why_killed:
                    ray.kill(actor.handle)

    def _result(self, i: int, call: Any) -> RolloutPart | None:
        """The result of a call. If its actor was lost, start a new one and return None."""
        import ray  # pyright: ignore[reportMissingImports]

        actor, name = self._actors[i], f"The Ray actor of environments {self.parts[i].start} … {self.parts[i].stop - 1}"
        try:
            part: RolloutPart = ray.get(call)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines()
            if getattr(error, "actor_init_failed", False):
                raise EnvError(f"{name} cannot start: {lines[-1]}.") from None
            if actor.why_killed and not actor.has_answered and not self.restarts:
                raise EnvError(
                    f"{name} {actor.why_killed}: increase step_timeout in worker_settings, or find out why in Ray's logs."
                ) from None
            why = actor.why_killed or f"was lost ({lines[0].rstrip('.')})"
            self.restarts += 1
            self._check_restarts(f"{name} {why}")
            limit = self.config.env.worker_settings.max_restarts
            self.warn(f"{name} {why}: it is restarted with new episodes (restart {self.restarts} of at most {limit}).")
            self._actors[i] = self._start(self.parts[i])
            return None
        actor.has_answered = True
        self.restarts += part.restarts - actor.restarts
        actor.restarts = part.restarts
        return part

    def _check_restarts(self, what: str) -> None:
        if self.restarts > (limit := self.config.env.worker_settings.max_restarts):
            raise EnvironmentFault(
                f"{what}, and actors and their workers were restarted {limit} times already: training stops. Find out why they end, for example "
                "in Ray's logs, or increase max_restarts in worker_settings."
            )

    def _start(self, part: range) -> _Actor:
        """Start an actor. Returns without waiting."""
        import ray  # pyright: ignore[reportMissingImports]

        remote = ray.remote(
            num_cpus=0,  # so that there may be more actors than CPUs
            max_restarts=0,
            scheduling_strategy="SPREAD",
            concurrency_groups={"health": 1},
            runtime_env={"env_vars": {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": str(int(jax.config.values["jax_enable_x64"]))}},
        )(RolloutActor)
        return _Actor(remote.remote(self._pickled, search_path(), part, __version__))

    def describe(self) -> str:
        """How the environments are stepped, in words."""
        return f"in {len(self.parts)} Ray actors"

    def close(self) -> None:
        """End the actors, their environments and their processes. The connection to Ray stays for later trainings of this process."""
        actors, self._actors = self._actors, []
        if actors:
            import ray  # pyright: ignore[reportMissingImports]

            with contextlib.suppress(Exception):  # Ray may have ended
                ray.wait([actor.handle.close.remote() for actor in actors], num_returns=len(actors), timeout=CLOSE_SECONDS)
                for actor in actors:
                    ray.kill(actor.handle)


def pickled(config: Config, env: GymnasiumEnvironment) -> bytes:
    """``config`` and ``env`` for actors. Raises ``EnvError`` if they cannot be pickled."""
    if config.env.num_workers == AUTO and env.make is not None:
        # A process of their own: if an environment crashes or hangs, only that step is lost.
        config = override(config, {"num_workers": 2 if config.env.overlap else 1})
    try:
        return cloudpickle.dumps((config, env))
    except Exception as error:
        raise EnvError(
            f"{env.id} cannot be sent to Ray actors ({type(error).__name__}: {error}): create objects that cannot be pickled in its constructor."
        ) from error


def check_installed() -> None:
    """Raise ``EnvError`` if Ray is not installed."""
    if find_spec("ray") is None:  # not imported here: it reads variables that ``connect`` sets
        raise lacking("actors (Ray)", "ray")


def connect() -> None:
    """Connect this process to Ray, unless it is connected already: to the cluster at ``RAY_ADDRESS`` or, without this variable, to the one
    that runs on this machine. If it is ``local``, start Ray on this machine.

    Raises:
        EnvError: Ray is not installed.
        ConfigError: no cluster answers at the address, or Ray cannot start.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no statistics of use are sent
    check_installed()
    address = os.environ.get("RAY_ADDRESS") or "auto"
    if address == "local":  # no other machine takes part: have Ray listen on loopback, as it does on Windows
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray  # pyright: ignore[reportMissingImports]

    if ray.is_initialized():
        return
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    options["job_config"] = job = ray.job_config.JobConfig()
    job._runtime_env_has_working_dir = lambda: True  # Ray would put the working folder first in an actor's path
    connecting: Future[None] = Future()

    def work() -> None:
        try:
            _check_reachable(address)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", r"os\.fork\(\) was called")  # Ray's child executes another program at once
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
        except BaseException as error:
            connecting.set_exception(error)
            return
        connecting.set_result(None)
        threading.Event().wait()

    # On Linux, a Ray that is started here ends with the thread that started it. In the main thread, Ray would replace signal handlers.
    threading.Thread(target=work, daemon=True).start()
    try:
        connecting.result()
    except (Exception, SystemExit) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split()).split(". ")[0].rstrip(".")
        if address == "local":
            raise ConfigError(f"RAY_ADDRESS = local: Ray cannot start on this machine ({reason}).") from error
        where = "on this machine" if address == "auto" else f"at RAY_ADDRESS = {address}"
        raise ConfigError(
            f"no Ray cluster answers {where} ({reason}): start its head with `ray start --head`, which shows its address HOST:PORT, or set "
            "RAY_ADDRESS=local to start Ray on this machine for this training."
        ) from error


def _check_reachable(address: str) -> None:
    """Raise ``OSError`` if nothing listens at HOST:PORT. Ray itself would try for minutes and end the process."""
    if address in ("auto", "local"):
        return
    if (head := re.fullmatch(r"([^\s:/]+):(\d+)", address)) is None:
        raise ValueError("expected local, or HOST:PORT of its head")
    socket.create_connection((head[1], int(head[2])), CONNECT_SECONDS).close()
