"""Collects rollouts of Gymnasium environments in Ray actors. Each actor steps a part of them. Ray is imported when it is used."""

import contextlib
import logging
import os
import re
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.collect.devices import on_one_device
from proximo.collect.episode_tally import Episode
from proximo.collect.gymnasium_collector import Collection, GymnasiumCollector, Timing
from proximo.collect.gymnasium_programs import GymnasiumPrograms
from proximo.config import Config, override
from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.vector_environment import AUTO, RESETS, reports_waiting, split
from proximo.envs.gymnasium.worker_process import search_path
from proximo.envs.gymnasium.workers import pickled
from proximo.errors import ConfigError, EnvError, EnvironmentFault
from proximo.jax_setup import prepare_jax
from proximo.networks import ActorCritic
from proximo.types import BurnIn, GymnasiumCollectorState, Rollout

CONNECT_SECONDS, CLOSE_SECONDS = 5.0, 1.0


class RolloutPart(NamedTuple):
    """What an actor returns."""

    fields: dict[str, Any]
    """Its ``Rollout`` as dictionaries: Equinox never frees a module that was unpickled."""
    finished: list[Episode]
    timing: Timing
    restarts: int
    """Workers of the actor that were lost and restarted since it was called before."""
    warnings: list[str]


class RolloutActor:
    """A ``GymnasiumCollector`` of the environments with the numbers ``part``, in a process of Ray.
    ``packed`` is the pickled pair of configuration and environment, and ``path`` is the learner's ``sys.path``."""

    def __init__(self, packed: bytes, path: tuple[str, ...], part: range):
        self._made_with = packed, path, part
        self._collector: GymnasiumCollector | None = None
        self._warnings: list[str] = []
        self._restarts = 0

    def _open(self) -> GymnasiumCollector:
        """The collector, made by the first call: Ray reports errors of constructors without their cause."""
        if self._collector is None:
            packed, path, part = self._made_with
            prepare_jax()
            sys.path.extend(entry for entry in path if entry not in sys.path)
            with custom_code_errors(f"Importing the environment on the machine {socket.gethostname()} of the Ray cluster"):
                config, env = cloudpickle.loads(packed)
            self._collector = GymnasiumCollector(config, env, part=part)
            self._collector.environments.warn = self._warnings.append
        return self._collector

    def run(self, policy: list[np.ndarray], key: np.ndarray, begins: bool | None) -> RolloutPart:
        """Collect a rollout of the policy with these arrays. ``begins`` is whether new episodes begin; with
        None, the environments are made, the programs compiled, and a rollout of zeros is returned."""
        collector = self._open()
        collector.timing = timing = Timing()
        actor_critic = jax.tree.unflatten(jax.tree.structure(collector.programs.policy), map(jnp.asarray, policy))
        state = GymnasiumCollectorState(jax.random.wrap_key_data(jnp.asarray(key)))
        is_alone = collector.env.make is None  # workers have time limits of their own
        with ends_if_hung(timing, collector.config.env.worker_settings.step_timeout) if is_alone else contextlib.nullcontext():
            if begins is None:
                rollout, compile_all = collector.example(actor_critic, state)
                compile_all()
            else:
                if begins:
                    collector.begin()
                _, rollout, _ = collector.collect(actor_critic, state)
        fields = {**vars(rollout), "burn_in_steps": rollout.burn_in_steps and vars(rollout.burn_in_steps)}
        messages, self._warnings[:] = list(self._warnings), []
        before, self._restarts = self._restarts, collector.environments.restarts
        return RolloutPart(jax.device_get(fields), collector.episodes.finished, timing, self._restarts - before, messages)

    def close(self) -> None:
        if self._collector is not None:
            self._collector.environments.close()


@contextlib.contextmanager
def ends_if_hung(timing: Timing, seconds: float) -> Iterator[None]:
    """Context manager: end this process if environments take no step for ``seconds``, or none within ten
    times as long from the beginning. The learner then replaces the actor."""
    is_over = threading.Event()

    def watch() -> None:
        spent, since = 0.0, time.monotonic()
        while not is_over.wait(seconds / 4):
            if timing.environment != spent:
                spent, since = timing.environment, time.monotonic()
            elif time.monotonic() - since > seconds * (1 if spent else RESETS):
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


class RolloutActors:
    """Starts Ray actors when they are first needed, calls all of them at once, and replaces those that die.
    Warnings go to ``warn``, which may be set at any time."""

    def __init__(self, config: Config, env: GymnasiumEnvironment):
        self.config, self.env = config, env
        self.parts = split(range(config.env.num_envs), config.env.actors)
        self.restarts = 0
        """Actors and their workers that were lost and started again so far."""
        self.warn: Any = lambda message: None
        self._actors: list[Any] = []
        self._ray: Any = None

    def call(self, policy: list[np.ndarray], *arguments: Any) -> list[RolloutPart | None]:
        """Call ``run`` of all actors. Returns their parts in order; None for an actor that was lost and is replaced. Raises ``EnvError``
        or ``EnvironmentFault`` if an environment failed, or after more than ``max_restarts`` restarts."""
        waiting = contextlib.nullcontext()
        if not self._actors:
            self._ray, self._pickled = connect(), _pickled(self.config, self.env)
            self._actors = [self._start(part) for part in self.parts]
            waiting = reports_waiting(self.warn, self.config.env.num_envs, self.env.id)
        stored = self._ray.put(policy)
        calls = [actor.run.remote(stored, *arguments) for actor in self._actors]
        with waiting:
            self._ray.wait(calls, num_returns=len(calls))
        parts = [self._result(i, call) for i, call in enumerate(calls)]
        for part in filter(None, parts):
            for message in part.warnings:
                self.warn(message)
            self._count(part.restarts, "Workers of the Ray actors ended")
        return parts

    def _result(self, i: int, call: Any) -> RolloutPart | None:
        """The result of a call. If its actor was lost, start a new one and return None."""
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            lines, part = str(error).strip().splitlines(), self.parts[i]
            actor = f"The Ray actor of environments {part.start} … {part.stop - 1}"
            if getattr(error, "actor_init_failed", False):
                raise EnvError(f"{actor} cannot start: {lines[-1]}.") from None
            lost = f"{actor} was lost ({lines[0].rstrip('.')})"
            limit = self._count(1, lost)
            self.warn(f"{lost}: it is restarted with new episodes (restart {self.restarts} of at most {limit}).")
            self._actors[i] = self._start(part)
            return None

    def _count(self, restarts: int, what: str) -> int:
        """Count restarts. Returns ``max_restarts``; raises ``EnvironmentFault`` above it."""
        self.restarts, limit = self.restarts + restarts, self.config.env.worker_settings.max_restarts
        if self.restarts > limit:
            raise EnvironmentFault(
                f"{what}, and actors and their workers were restarted {limit} times already: training stops. "
                "Find out why they end, for example in Ray's logs, or increase max_restarts in worker_settings."
            )
        return limit

    def _start(self, part: range) -> Any:
        """Start an actor. Returns without waiting."""
        variables = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": str(int(jax.config.values["jax_enable_x64"]))}
        # No CPU is reserved, so that there may be more actors than CPUs.
        options = {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": "SPREAD", "runtime_env": {"env_vars": variables}}
        return self._ray.remote(**options)(RolloutActor).remote(self._pickled, search_path(), part)

    def describe(self) -> str:
        return f"in {len(self.parts)} Ray actors"

    def close(self) -> None:
        """End the actors, their environments and their processes. The connection to Ray stays."""
        actors, self._actors = self._actors, []
        with contextlib.suppress(Exception):  # Ray may have ended
            if closing := [actor.close.remote() for actor in actors]:
                self._ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)
            for actor in actors:
                self._ray.kill(actor)


def _pickled(config: Config, env: GymnasiumEnvironment) -> bytes:
    """``config`` and ``env`` for actors. Raises ``EnvError`` if they cannot be pickled."""
    if config.env.num_workers in (AUTO, 0) and env.make is not None:
        # A process of their own: if an environment crashes or hangs, only that step is lost.
        config = override(config, {"num_workers": 2 if config.env.overlap else 1})
    return pickled((config, env), env.id, "Ray actors", otherwise="")


class RayCollector(GymnasiumCollector):
    """A ``GymnasiumCollector`` whose environments are divided equally among ``actors`` Ray actors. If an
    actor dies, its part of the rollout has no valid step. The actor that replaces it begins new episodes in
    the next rollout."""

    def __init__(self, config: Config, env: GymnasiumEnvironment, programs: GymnasiumPrograms):
        super().__init__(config, env, programs)
        self.environments: Any = RolloutActors(config, env)
        self._begins = True
        """Whether the next rollout begins with new episodes in all environments."""

    def begin(self) -> None:
        self._begins = True

    def example(self, policy: ActorCritic, state: GymnasiumCollectorState) -> tuple[Rollout, Callable[[], None]]:
        return self._run(policy, state.key, None)[0], lambda: None  # the actors have compiled

    def collect(self, policy: ActorCritic, state: GymnasiumCollectorState) -> Collection:
        """As ``GymnasiumCollector.collect``. The mean seconds of environments and policy in an actor are added to ``timing``."""
        rollout, key, parts = self._run(on_one_device(policy), state.key, self._begins)
        self._begins = False
        self.episodes.finished = [episode for part in parts for episode in part.finished]
        for part in parts:
            self.timing.environment += part.timing.environment / len(parts)
            self.timing.policy += part.timing.policy / len(parts)
        return GymnasiumCollectorState(key), rollout, self.episodes.metrics()

    def _run(
        self, policy: ActorCritic, key: Key[Array, ""], begins: bool | None
    ) -> tuple[Rollout, Key[Array, ""], list[RolloutPart]]:
        """The rollout of all actors, the next key, and the parts that are not lost. A copy of another part
        replaces a lost one. The policy accepts its numbers, and nothing learns from them, because all its steps
        are padding."""
        arrays = jax.device_get(jax.tree.leaves(policy))
        while not any(parts := self.environments.call(arrays, np.asarray(jax.random.key_data(key)), begins)):
            key = jax.random.fold_in(key, 0)  # all actors were lost: the new ones have other seeds
        found = [part for part in parts if part]
        fields = found[0].fields
        never, burn_in = np.zeros_like(fields["valid"]), fields["burn_in_steps"]
        lost = fields | {
            "valid": never,
            "terminated": never,
            "truncated": ~never,  # restarts the running return that scales rewards
            "bootstrap_value": jax.tree.map(np.zeros_like, fields["bootstrap_value"]),
            "burn_in_steps": burn_in and burn_in | {"valid": np.zeros_like(burn_in["valid"])},
        }

        def joined(path: tuple[Any, ...], *arrays: np.ndarray) -> Array:
            return jnp.asarray(np.concatenate(arrays, 0 if path[0].key.startswith("last_") else 1))

        fields = jax.tree.map_with_path(joined, *(part.fields if part else lost for part in parts))
        burn_in = fields.pop("burn_in_steps")
        rollout = Rollout(**fields, burn_in_steps=burn_in and BurnIn(**burn_in))
        return rollout, self.programs.begin(0, policy, key)[2], found


def connect() -> Any:
    """Connect this process to Ray, unless it is connected: to the cluster at ``RAY_ADDRESS`` or, without this
    variable, to the one that runs on this machine. ``local`` starts Ray on this machine. Returns the module ``ray``.
    Raises ``ConfigError`` if no cluster answers or Ray cannot start."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no statistics of use are sent
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

    # On Linux, Ray ends with the thread that started it. The main thread would lose its signal handlers.
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
