"""Ray actors. Each collects rollouts of a part of the environments. Ray is imported when actors start.

An actor runs a ``GymnasiumCollector``. It receives the arrays of a policy and returns a whole rollout, both through Ray's object store.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import Future
from importlib.util import find_spec
from typing import Any

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
from proximo.envs.gymnasium.vector_environment import AUTO, split
from proximo.envs.gymnasium.waiting_messages import reports_waiting
from proximo.envs.gymnasium.worker_process import search_path
from proximo.errors import ConfigError, EnvError, EnvironmentFault, lacking
from proximo.jax_setup import prepare_jax
from proximo.types import GymnasiumCollectorState

CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 1.0


@dataclasses.dataclass
class RolloutPart:
    """What an actor returns."""

    rollout: GymnasiumRollout
    """Of the actor's environments, without the policy."""
    finished: list[Episode] = dataclasses.field(default_factory=list)
    timing: Timing = dataclasses.field(default_factory=Timing)
    restarts: int = 0
    """Workers of the actor that were lost and restarted meanwhile."""
    warnings: list[str] = dataclasses.field(default_factory=list)


class RolloutActor:
    """Collects rollouts of the environments with the numbers ``part``. Runs in a process of Ray.

    ``pickled`` is the pair of configuration and environment, ``path`` is the learner's ``sys.path``, and ``version`` its proximo.
    """

    def __init__(self, pickled: bytes, path: tuple[str, ...], part: range, version: str):
        self._pickled, self._path, self._part, self._version = pickled, path, part, version
        self._collector: GymnasiumCollector | None = None
        self._warnings: list[str] = []
        self._timing = Timing()  # of the rollout that is collected now: it grows with each step

    def open(self) -> None:
        """Make the collector, before its first call needs it."""
        self._opened()

    def _opened(self) -> GymnasiumCollector:
        """The collector, made by the first call."""
        if self._collector is None:
            if self._version != __version__:
                raise EnvError(
                    f"The machine {socket.gethostname()} of the Ray cluster has proximo {__version__}, the learner has {self._version}: "
                    "install the same version on all machines."
                )
            prepare_jax()
            sys.path.extend(entry for entry in self._path if entry not in sys.path)
            with custom_code_errors(f"Importing the environment on the machine {socket.gethostname()} of the Ray cluster"):
                config, env = cloudpickle.loads(self._pickled)
            self._collector = GymnasiumCollector(config, env, part=self._part)
            self._collector.environments.warn = self._warnings.append
        return self._collector

    def prepare(self, policy: Sequence[np.ndarray], key: np.ndarray) -> RolloutPart:
        """Make the environments and compile what collecting needs. The rollout has the right shapes and arbitrary numbers."""
        collector = self._opened()
        rollout = collector.compile(collector.programs.policy_of(policy), _state(key))
        return self._part_of(rollout)

    def collect(self, policy: Sequence[np.ndarray], key: np.ndarray, begins: bool) -> RolloutPart:
        """Collect a rollout of the policy with these arrays. If ``begins`` is true, all environments start new episodes."""
        collector = self._opened()
        self._timing = timing = Timing()
        if begins:
            collector.begin()
        restarts = collector.environments.restarts
        _, rollout, _ = collector.collect(collector.programs.policy_of(policy), _state(key), timing)
        return self._part_of(rollout, collector.episodes.finished, timing, collector.environments.restarts - restarts)

    def _part_of(self, rollout: GymnasiumRollout, *others: Any) -> RolloutPart:
        messages, self._warnings[:] = list(self._warnings), []
        return RolloutPart(jax.device_get(dataclasses.replace(rollout, policy=())), *others, warnings=messages)

    def close(self) -> None:
        """End the environments and their processes."""
        if self._collector is not None:
            self._collector.environments.close()

    def ping(self) -> float | None:
        """Return at once, which shows that the process runs: a number that changes with each step of environments in this process; 0.0
        before the first. None if workers, which have time limits themselves, step them."""
        vector_env = self._collector and self._collector.environments.vector_env
        return None if vector_env is None or vector_env.num_workers else self._timing.environment


class _Actor:
    """An actor as the learner sees it: its handle and its status."""

    def __init__(self, handle: Any):
        self.handle = handle
        self.started = time.monotonic()
        self.has_answered = False
        """Whether it has returned anything so far."""
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

    def open(self) -> None:
        """Connect to Ray and start the actors."""
        if not self._actors:
            connect(self.config.env.ray)
            self._pickled = _pickled(self.config, self.env)
            self._actors = [_Actor(self._start(part)) for part in self.parts]

    def call(self, method: str, policy: list[np.ndarray], *arguments: Any) -> list[RolloutPart | None]:
        """Call a method of all actors with a policy. Returns their parts in order; None for an actor that was lost and is replaced.

        Raises:
            EnvError, EnvironmentFault: an environment failed, or actors were lost too often.
        """
        self.open()
        import ray  # pyright: ignore[reportMissingImports]

        stored = ray.put(policy)
        limit = self.config.env.reset_timeout
        starting = sum(len(part) for part, actor in zip(self.parts, self._actors, strict=True) if not actor.has_answered)
        calls = [getattr(actor.handle, method).remote(stored, *arguments) for actor in self._actors]
        with reports_waiting(self.warn, starting, self.env.id, limit) if starting else contextlib.nullcontext():
            self._wait(calls)
        parts = [self._result(i, call) for i, call in enumerate(calls)]
        self.restarts += sum(part.restarts for part in parts if part)
        for message in (message for part in parts if part for message in part.warnings):
            self.warn(message)
        self._check_restarts("Workers of the Ray actors ended")
        return parts

    def _wait(self, calls: list[Any]) -> None:
        """Wait until all calls have ended. An actor that does not start in time, does not answer, or takes no step, is killed."""
        import ray  # pyright: ignore[reportMissingImports]

        step_timeout, reset_timeout, pending = self.config.env.step_timeout, self.config.env.reset_timeout, list(calls)
        began, progress = time.monotonic(), dict[_Actor, float | None]()
        while pending:
            _, pending = ray.wait(pending, num_returns=len(pending), timeout=step_timeout)
            if not pending:
                return
            late = [self._actors[calls.index(call)] for call in pending]
            pings = {actor: actor.handle.ping.options(concurrency_group="health").remote() for actor in late}
            answered = ray.wait(list(pings.values()), num_returns=len(pings), timeout=step_timeout)[0]
            for actor in late:
                if not actor.has_answered and time.monotonic() - actor.started > reset_timeout:
                    actor.why_killed = f"did not start within {reset_timeout:g} s (reset_timeout)"
                elif actor.has_answered and pings[actor] not in answered:
                    actor.why_killed = f"did not answer for more than {step_timeout:g} s (step_timeout)"
                elif actor.has_answered:
                    with contextlib.suppress(ray.exceptions.RayError):  # it has ended
                        before, progress[actor] = progress.get(actor), ray.get(pings[actor])
                        seconds, limit = (step_timeout, "step_timeout") if before else (reset_timeout, "reset_timeout")
                        if before is not None and before == progress[actor] and time.monotonic() - began > seconds:
                            actor.why_killed = f"took no step for more than {seconds:g} s ({limit})"
                if actor.why_killed:
                    ray.kill(actor.handle)

    def _result(self, i: int, call: Any) -> RolloutPart | None:
        """The result of a call. If its actor was lost, start a new one and return None."""
        import ray  # pyright: ignore[reportMissingImports]
        from ray.exceptions import RayError, RayTaskError  # pyright: ignore[reportMissingImports]

        actor = self._actors[i]
        try:
            part = ray.get(call)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            if getattr(error, "actor_init_failed", False):
                raise EnvError(f"{self._name(i)} cannot start: {str(error).strip().splitlines()[-1]}.") from None
            if actor.why_killed and not actor.has_answered and not self.restarts:
                raise EnvError(
                    f"{self._name(i)} {actor.why_killed}: increase reset_timeout, or check with `ray status` whether the cluster has "
                    f"{self.config.env.actors} × {self.config.env.actor_cpus:g} free CPUs (actor_cpus)."
                ) from None
            why = actor.why_killed or f"was lost ({str(error).strip().splitlines()[0].rstrip('.')})"
            self.restarts += 1
            self._check_restarts(f"{self._name(i)} {why}")
            self.warn(
                f"{self._name(i)} {why}: it is restarted with new episodes (restart {self.restarts} of at most {self.config.env.max_restarts})."
            )
            self._actors[i] = new = _Actor(self._start(self.parts[i]))
            new.handle.open.remote()
            return None
        actor.has_answered = True
        return part

    def _check_restarts(self, what: str) -> None:
        most = self.config.env.max_restarts
        if self.restarts > most:
            raise EnvironmentFault(
                f"{what}, and actors and their workers were restarted {most} times already: training stops. Find out why they end, for example "
                "in Ray's logs, or increase max_restarts."
            )

    def _name(self, i: int) -> str:
        return f"The Ray actor of environments {self.parts[i].start} … {self.parts[i].stop - 1}"

    def _start(self, part: range) -> Any:
        """Start an actor. Returns its handle without waiting."""
        import ray  # pyright: ignore[reportMissingImports]

        variables = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": str(int(jax.config.values["jax_enable_x64"]))}
        remote = ray.remote(
            num_cpus=self.config.env.actor_cpus,
            max_restarts=0,
            scheduling_strategy="SPREAD",
            concurrency_groups={"health": 1},
            runtime_env={"env_vars": variables},
        )(RolloutActor)
        return remote.remote(self._pickled, search_path(), part, __version__)

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
                with contextlib.suppress(Exception):
                    ray.kill(actor.handle)


def check_installed() -> None:
    """Raise ``EnvError`` if Ray is not installed."""
    if find_spec("ray") is None:  # not imported here: it reads variables that ``connect`` sets
        raise lacking("actors (Ray)", "ray")


def connect(address: str) -> None:
    """Connect this process to Ray, unless it is connected already.

    Raises:
        EnvError: Ray is not installed.
        ConfigError: no cluster answers at the address, or the process is connected to another one.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no statistics of use are sent
    check_installed()
    if address == "local":  # no other machine takes part: have Ray listen on loopback, as it does on Windows
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray  # pyright: ignore[reportMissingImports]

    if ray.is_initialized():
        if address not in ("auto", "local", connected := ray.get_runtime_context().gcs_address):
            raise ConfigError(
                f"ray = {address}, but this process is connected to Ray at {connected}: call ray.shutdown() first, or omit the setting ray."
            )
        return
    _check_reachable(os.environ.get("RAY_ADDRESS", "") if address == "auto" else address)
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    options["job_config"] = job = ray.job_config.JobConfig()
    job._runtime_env_has_working_dir = lambda: True  # Ray would put the working folder first in an actor's path
    connecting: Future[None] = Future()

    def work() -> None:
        try:
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
        reason = " ".join(str(error).split()).split(". ")[0].rstrip(".")
        raise ConfigError(
            f"ray = {address}: Ray cannot be reached ({reason}): start it with `ray start --head`, give the address HOST:PORT of a cluster, or "
            "set ray = local to start it on this machine for this training."
        ) from error


def _check_reachable(head: str) -> None:
    """Raise ``ConfigError`` if nothing listens at HOST:PORT. Ray itself would try for minutes and end the process."""
    host, _, port = head.rpartition(":")
    if not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigError(
            f"ray = {head}: nothing answers there ({error.strerror or error}): start the head of the cluster with `ray start --head`, "
            "which shows its address, or set ray = local to start Ray on this machine for this training."
        ) from None


def _pickled(config: Config, env: GymnasiumEnvironment) -> bytes:
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


def _state(key: np.ndarray) -> GymnasiumCollectorState:
    return GymnasiumCollectorState(jax.random.wrap_key_data(jnp.asarray(key)))
