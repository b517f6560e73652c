"""``GymnasiumEnvironment``: the spaces of a Gymnasium environment, and how copies of it are made and stepped."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from proximo.envs.base import Described
from proximo.envs.gymnasium.rollout_buffer import BufferLayout
from proximo.envs.gymnasium.stepper import EnvironmentSpec, Stepper
from proximo.envs.gymnasium.vector_env_adapter import VectorStepper
from proximo.envs.gymnasium.vector_environment import AUTO, VectorEnvironment, VectorOptions, reports_waiting
from proximo.envs.gymnasium.worker_process import POSIX
from proximo.envs.gymnasium.workers import WorkerVectorEnvironment, pickled
from proximo.errors import ConfigError, EnvError


@dataclass(frozen=True, repr=False)
class GymnasiumEnvironment(Described):
    """A Gymnasium environment of which any number can be made.

    ``construction.py`` makes it. At least one of ``make`` and ``make_vector`` is given.
    """

    spec: EnvironmentSpec
    make: Callable[..., Any] | None = None
    """``make()`` makes one environment with its preprocessing; ``make(render_mode="rgb_array")`` makes one that can draw."""
    make_vector: Callable[..., Any] | None = None
    """``make_vector(num_envs)`` makes a Gymnasium ``VectorEnv``."""
    is_threaded: bool = False
    """Whether ``make_vector`` takes ``num_threads``, and its ``VectorEnv`` also has ``send(actions)``, which begins a
    step, and ``recv()``, which returns its result."""
    render_modes: tuple[str, ...] = ()
    """Values of ``render_mode`` that a single environment declares."""
    takes_render_mode: bool = True
    """Whether it can be made in a ``render_mode``."""
    render_fps: float = 0.0
    """Frames per second that it declares; 0: none."""
    is_quick: bool = False
    """Whether a step takes less time than a message to a worker."""
    warnings: tuple[str, ...] = ()
    """What a user should know before a training, one sentence each."""

    id = property(lambda self: self.spec.env_id)
    observation_space = property(lambda self: self.spec.observation_space)
    action_space = property(lambda self: self.spec.action_space)

    def without_render_mode(self, one: Any) -> str:
        """What to do if ``one`` of these environments declares that it can draw, but was made without a ``render_mode``; else ""."""
        may_draw = self.takes_render_mode or getattr(one, "render_mode", None) is not None
        if may_draw or "rgb_array" not in self.render_modes:
            return ""
        return (
            f"{self.id} cannot be watched: it was made without a render_mode. Give its class or function an argument render_mode, as "
            "lambda render_mode=None: MyEnv(render_mode=render_mode)."
        )

    def check(self, num_envs: int, options: VectorOptions) -> None:
        """Raise ``ConfigError`` if ``num_envs`` of these environments cannot be stepped with ``options``."""
        workers, groups = options.num_workers, options.num_groups
        if self.uses_vector_env(options):
            overlaps = groups > 1 and not self.is_threaded
            given = {"num_workers": workers > 0, "overlap": overlaps, "stagger_steps": options.stagger_steps > 0}
            for name in [name for name, value in given.items() if value]:
                raise ConfigError(
                    f"{name}: {self.id} is a vector environment that steps its environments itself: leave out {name}, and set its own "
                    "parameters with --env-settings."
                )
        if workers > 0 and not POSIX:
            raise ConfigError(f"num_workers = {workers}: workers need Linux or macOS. Set num_workers = 0.")
        if num_envs < groups:
            raise ConfigError(f"overlap = true needs at least {groups} environments, num_envs is {num_envs}.")
        if workers > num_envs or (workers > 0 and workers % groups):
            multiple = f", and a multiple of {groups} with overlap" if groups > 1 else ""
            raise ConfigError(
                f"num_workers = {workers}: expected at most num_envs = {num_envs}{multiple}. num_workers is a number of processes; the number "
                "of environments is num_envs."
            )

    def uses_vector_env(self, options: VectorOptions) -> bool:
        """Whether the environment's own vector environment is used instead of single environments."""
        return self.make_vector is not None and (self.make is None or not options.single_environments)

    def default_workers(self, num_envs: int, num_groups: int, cores: int) -> int:
        """The workers for ``num_workers = -1``: one for each core, at most ``num_envs``, equally many for each group.
        0 if that is one, if a step is quick, or on Windows."""
        workers = min(cores, num_envs) // num_groups * num_groups
        return 0 if self.is_quick or workers < 2 or not POSIX else workers

    def open(self, num_envs: int, num_steps: int, options: VectorOptions) -> VectorEnvironment:
        """Make ``num_envs`` environments N, with a rollout buffer of ``num_steps`` steps T.

        Raises ``ConfigError`` if they cannot be stepped with these options, and ``EnvError`` if one cannot be made.
        """
        self.check(num_envs, options)
        layout, groups = BufferLayout(num_steps, num_envs, self.observation_space, self.action_space), options.num_groups
        make, make_vector, workers = self.make, self.make_vector, options.num_workers
        if self.uses_vector_env(options):
            assert make_vector is not None
            where = "in their own vector environment" if groups == 1 else f"in {groups} vector environments"
            if groups > 1:
                make_vector = partial(make_vector, num_threads=max(1, min(options.cores, num_envs) // groups))
            with reports_waiting(options.warn, num_envs, self.id):
                make_stepper = partial(VectorStepper, make_vector, self.spec, is_async=groups > 1)
                return VectorEnvironment(make_stepper, layout, options, where)
        assert make is not None
        if workers == AUTO and (workers := self.default_workers(num_envs, groups, options.cores)):
            try:
                pickled(make, self.id)
            except EnvError as error:
                options.warn(f"{error} Until then, the training process steps the environments.")
                workers = 0
        if workers > options.cores:
            options.warn(
                f"num_workers = {workers} is more than the number of cores, {options.cores}: processes wait for each other. num_workers = -1 starts "
                "one for each core; the number of environments is num_envs."
            )
        with reports_waiting(options.warn, num_envs, self.id, options.reset_timeout if workers else 0.0):
            if workers == 0:
                return VectorEnvironment(partial(Stepper, make, self.spec), layout, options, "in this process")
            return WorkerVectorEnvironment(make, layout, self.spec, dataclasses.replace(options, num_workers=workers))
