"""Ray actors: each collects rollouts of a part of the environments. Ray is imported when it is used."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np

from proximo.collect.episode_tally import Episode
from proximo.collect.gymnasium_collector import GymnasiumCollector, Timing
from proximo.collect.ray_connection import connect
from proximo.config import Config, override
from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.vector_environment import AUTO, RESETS, reports_waiting, split
from proximo.envs.gymnasium.worker_process import search_path
from proximo.errors import EnvError, EnvironmentFault
from proximo.jax_setup import prepare_jax
from proximo.types import GymnasiumCollectorState

CLOSE_SECONDS = 1.0


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

    ``pickled`` is the pair of configuration and environment, and ``path`` is the learner's ``sys.path``.
    """

    def __init__(self, pickled: bytes, path: tuple[str, ...], part: range):
        self._made_with = pickled, path, part
        self._collector: GymnasiumCollector | None = None
        self._warnings: list[str] = []
        self._restarts = 0

    def _open(self) -> GymnasiumCollector:
        """The collector, made by the first call: Ray reports exceptions of constructors without their cause."""
        if self._collector is None:
            pickled, path, part = self._made_with
            prepare_jax()
            sys.path.extend(entry for entry in path if entry not in sys.path)
            here = f"the machine {socket.gethostname()} of the Ray cluster"
            with custom_code_errors(f"Importing the environment on {here}"):
                config, env = cloudpickle.loads(pickled)
            self._collector = GymnasiumCollector(config, env, part=part)
            self._collector.environments.warn = self._warnings.append
        return self._collector

    def run(self, policy: list[np.ndarray], key: np.ndarray, begins: bool | None) -> RolloutPart:
        """Collect a rollout of the policy with these arrays. ``begins`` is whether new episodes begin; with None, the environments are made,
        the programs compiled, and a rollout of zeros is returned."""
        collector, timing = self._open(), Timing()
        actor_critic = collector.programs.policy_of(policy)
        state = GymnasiumCollectorState(jax.random.wrap_key_data(jnp.asarray(key)))
        is_alone = collector.env.make is None  # workers have time limits of their own
        with ends_if_hung(timing, collector.config.env.worker_settings.step_timeout) if is_alone else contextlib.nullcontext():
            if begins is None:
                rollout, compile_all = collector.example(actor_critic, state)
                compile_all()
            else:
                if begins:
                    collector.begin()
                _, rollout, _ = collector.collect(actor_critic, state, timing)
        fields = {**vars(rollout), "burn_in_steps": rollout.burn_in_steps and vars(rollout.burn_in_steps)}
        messages, self._warnings[:] = list(self._warnings), []
        before, self._restarts = self._restarts, collector.environments.restarts
        restarts = self._restarts - before
        return RolloutPart(jax.device_get(fields), collector.episodes.finished, timing, restarts, messages)

    def close(self) -> None:
        """End the environments and their processes."""
        if self._collector is not None:
            self._collector.environments.close()


@contextlib.contextmanager
def ends_if_hung(timing: Timing, seconds: float) -> Iterator[None]:
    """Context manager: end this process if environments take no step for ``seconds``, or none within ten times as long from the beginning.
    The learner then replaces the actor."""
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
    """Starts Ray actors when they are first needed, calls all of them at once, and replaces those that die. Warnings go to
    ``warn``, which may be set at any time. After ``max_restarts`` restarts, the next one raises ``EnvironmentFault``."""

    def __init__(self, config: Config, env: GymnasiumEnvironment):
        self.config, self.env = config, env
        self.parts = split(range(config.env.num_envs), config.env.actors)
        self.restarts = 0
        """Actors and their workers that were lost and started again so far."""
        self.warn: Any = lambda message: None
        self._actors: list[Any] = []
        self._ray: Any = None

    def call(self, policy: list[np.ndarray], *arguments: Any) -> list[RolloutPart | None]:
        """Call ``run`` of all actors. Returns their parts in order; None for an actor that was lost and is replaced.
        Raises ``EnvError`` or ``EnvironmentFault`` if an environment failed, or actors were lost too often."""
        waiting = contextlib.nullcontext()
        if not self._actors:
            self._ray, self._pickled = connect(), pickled(self.config, self.env)
            self._actors = [self._start(part) for part in self.parts]
            waiting = reports_waiting(self.warn, self.config.env.num_envs, self.env.id)
        stored = self._ray.put(policy)
        calls = [actor.run.remote(stored, *arguments) for actor in self._actors]
        with waiting:
            self._ray.wait(calls, num_returns=len(calls))
        parts = [self._result(i, call) for i, call in enumerate(calls)]
        for message in (message for part in parts if part for message in part.warnings):
            self.warn(message)
        self._check_restarts("Workers of the Ray actors ended")
        return parts

    def _result(self, i: int, call: Any) -> RolloutPart | None:
        """The result of a call. If its actor was lost, start a new one and return None."""
        try:
            part: RolloutPart = self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            lines, name = str(error).strip().splitlines(), f"{self.parts[i].start} … {self.parts[i].stop - 1}"
            if getattr(error, "actor_init_failed", False):
                raise EnvError(f"The Ray actor of environments {name} cannot start: {lines[-1]}.") from None
            what, limit = (
                f"The Ray actor of environments {name} was lost ({lines[0].rstrip('.')})",
                self.config.env.worker_settings.max_restarts,
            )
            self.restarts += 1
            self._check_restarts(what)
            self.warn(f"{what}: it is restarted with new episodes (restart {self.restarts} of at most {limit}).")
            self._actors[i] = self._start(self.parts[i])
            return None
        self.restarts += part.restarts
        return part

    def _check_restarts(self, what: str) -> None:
        if self.restarts > (limit := self.config.env.worker_settings.max_restarts):
            raise EnvironmentFault(
                f"{what}, and actors and their workers were restarted {limit} times already: training stops. "
                "Find out why they end, for example in Ray's logs, or increase max_restarts in worker_settings."
            )

    def _start(self, part: range) -> Any:
        """Start an actor. Returns without waiting."""
        variables = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": str(int(jax.config.values["jax_enable_x64"]))}
        remote = self._ray.remote(
            num_cpus=0,  # so that there may be more actors than CPUs
            max_restarts=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": variables},
        )(RolloutActor)
        return remote.remote(self._pickled, search_path(), part)

    def describe(self) -> str:
        """How the environments are stepped, in words."""
        return f"in {len(self.parts)} Ray actors"

    def close(self) -> None:
        """End the actors, their environments and their processes. The connection to Ray stays."""
        actors, self._actors = self._actors, []
        with contextlib.suppress(Exception):  # Ray may have ended
            closing = [actor.close.remote() for actor in actors]
            if closing:
                self._ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)
            for actor in actors:
                self._ray.kill(actor)


def pickled(config: Config, env: GymnasiumEnvironment) -> bytes:
    """``config`` and ``env`` for actors. Raises ``EnvError`` if they cannot be pickled."""
    if config.env.num_workers in (AUTO, 0) and env.make is not None:
        # A process of their own: if an environment crashes or hangs, only that step is lost.
        config = override(config, {"num_workers": 2 if config.env.overlap else 1})
    try:
        return cloudpickle.dumps((config, env))
    except Exception as error:
        raise EnvError(
            f"{env.id} cannot be sent to Ray actors ({type(error).__name__}: {error}): create objects that cannot be pickled "
            "in its constructor."
        ) from error
