"""``GymnasiumEnvironment``: the spaces of a Gymnasium environment, and how copies are made and stepped."""

import contextlib
import dataclasses
import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym

from proximo.custom_code import custom_code_errors
from proximo.envs.agent_inputs import check_agent_id
from proximo.envs.gymnasium.action_masks import MaskInObservation, VectorMaskInObservation, mask_size, with_mask
from proximo.envs.gymnasium.agents import make_stepper
from proximo.envs.gymnasium.parallel_env import ParallelEnv, has_agents
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.gymnasium.rollout_buffer import BufferLayout
from proximo.envs.gymnasium.stepper import EnvironmentSpec, checked_reset
from proximo.envs.gymnasium.supersuit import SuperSuitVectorEnv
from proximo.envs.gymnasium.vector_env_adapter import VectorStepper, autoreset_of
from proximo.envs.gymnasium.vector_environment import AUTO, VectorEnvironment, VectorOptions, reports_waiting
from proximo.envs.gymnasium.worker_process import POSIX
from proximo.envs.gymnasium.workers import WorkerVectorEnvironment, pickled
from proximo.envs.libraries import Described
from proximo.errors import ConfigError, EnvError, lacking
from proximo.spaces import from_any

EXTRAS = {"box2d": "box2d", "pygame": "box2d", "ale_py": "atari", "opencv": "atari", "mujoco": "mujoco", "minigrid": "minigrid"}
"""The extra that installs each module."""


@dataclass(frozen=True, repr=False)
class GymnasiumEnvironment(Described):
    """A Gymnasium environment of which any number can be made.

    ``from_factory`` and ``from_vector`` make it. At least one of ``make`` and ``make_vector`` is given.
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
    num_agents = property(lambda self: self.spec.num_agents)

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
            if name := next((name for name, value in given.items() if value), None):
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
        layout = BufferLayout(num_steps, num_envs * self.num_agents, self.observation_space, self.action_space)
        make: Any = self.make
        stepper, where, groups = partial(make_stepper, make, self.spec), "in this process", options.num_groups
        workers = options.num_workers
        if self.uses_vector_env(options):
            make_vector: Any = self.make_vector
            workers = 0
            where = "in their own vector environment" if groups == 1 else f"in {groups} vector environments"
            if groups > 1:
                make_vector = partial(make_vector, num_threads=max(1, min(options.cores, num_envs) // groups))
            stepper = partial(VectorStepper, make_vector, self.spec, is_async=groups > 1)
        elif workers == AUTO and (workers := self.default_workers(num_envs, groups, options.cores)):
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
            if workers:
                return WorkerVectorEnvironment(make, layout, self.spec, dataclasses.replace(options, num_workers=workers))
            return VectorEnvironment(stepper, layout, options, where, self.num_agents)


@contextlib.contextmanager
def construction_errors(env_id: str, what: str = "Making") -> Iterator[None]:
    """Convert exceptions of a constructor to ``EnvError``, which names the extra that installs a missing
    library."""
    try:
        with custom_code_errors(f"{what} {env_id}"):
            yield
    except EnvError as error:
        missing = isinstance(error.__cause__, gym.error.DependencyNotInstalled | ModuleNotFoundError)
        extra = next((extra for name, extra in EXTRAS.items() if name in str(error).lower()), None) if missing else None
        if extra is None:
            raise
        raise lacking(env_id, extra) from error


def from_factory(make: Callable[..., Any], env_id: str, preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """The environment of a function ``make()``, or ``make(render_mode=None)``. One instance is made here,
    for its spaces and its action mask.

    Raises ``EnvError`` if it does not follow Gymnasium's interface.
    """
    parameters = inspect.signature(make).parameters
    # A custom class may render without this argument.
    renders = "render_mode" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    factory = partial(_make, make, renders, env_id, preprocessing)
    spec, size, metadata = _example(partial(factory, 0), env_id, preprocessing)
    modes, fps = tuple(metadata.get("render_modes") or ()), float(metadata.get("render_fps") or 0)
    return GymnasiumEnvironment(spec, partial(factory, size), render_modes=modes, render_fps=fps, takes_render_mode=renders)


def _make(
    make: Callable[..., Any], renders: bool, env_id: str, preprocessing: Preprocessing, size: int, render_mode: str | None = None
) -> Any:
    """Make one environment with its preprocessing, and with its mask of ``size`` entries (0: none)."""
    made = make(render_mode=render_mode) if renders and render_mode is not None else make()
    if has_agents(made):
        if dataclasses.replace(preprocessing, max_episode_steps=0, agent_id=False, needs_state=False) != Preprocessing():
            raise ConfigError(
                f"{env_id} has several agents: preprocessing, frame_stack, action_repeat, levels, wrappers, drop_observations, life_loss and "
                "randomize are for one; use SuperSuit in a function that makes the environment."
            )
        return ParallelEnv(made, env_id, size, preprocessing.agent_id, preprocessing.needs_state)
    check_agent_id(preprocessing.agent_id, 1, env_id)
    env = preprocessing.wrap(made, env_id)
    return MaskInObservation(env, size, env_id) if size else env


def from_vector(
    make_vector: Callable[..., Any], env_id: str, preprocessing: Preprocessing, is_threaded: bool = False
) -> GymnasiumEnvironment:
    """The environment of a function ``make_vector(num_envs)``, which makes a Gymnasium ``VectorEnv``. One
    instance is made here, to read its spaces.

    ``is_threaded`` is explained in ``GymnasiumEnvironment``; such an environment has no action mask. Raises
    ``ConfigError`` if the preprocessing needs single environments, and ``EnvError`` if the environment does
    not follow Gymnasium's interface.
    """
    if preprocessing.wraps:
        raise ConfigError(
            f"{env_id} is a vector environment: preprocessing, frame_stack, action_repeat, levels, wrappers, drop_observations, "
            "max_episode_steps, randomize and agent_id need single environments; set its own parameters with --env-settings."
        )
    spec, size, _ = _example(partial(make_vector, 1), env_id, preprocessing, "single_", is_threaded)
    make = (lambda num_envs: VectorMaskInObservation(make_vector(num_envs), size, env_id)) if size else make_vector
    return GymnasiumEnvironment(spec, make_vector=make, is_threaded=is_threaded)


def _example(
    make: Callable[[], Any], env_id: str, preprocessing: Preprocessing, prefix: str = "", is_threaded: bool = False
) -> tuple[EnvironmentSpec, int, dict[str, Any]]:
    """Make one environment, whose spaces have names with ``prefix``, and reset it. Returns what stepping
    needs to know, the entries of its mask if this is not in its observation, and its metadata."""
    limit, lives, info, size = preprocessing.max_episode_steps, preprocessing.life_loss, {}, 0
    with reports_waiting(warnings.warn, 1, env_id), contextlib.closing(make()) as env:
        if prefix:
            autoreset_of(env, env_id)
        spaces = {name: getattr(env, f"{prefix}{name}", None) for name in ("observation_space", "action_space")}
        for name, space in spaces.items():
            if space is None:
                raise EnvError(f"{env_id} has no {name}: define it, for example as gymnasium.spaces.Box or Discrete.")
        if lives or not is_threaded:
            _, info = checked_reset(env, lambda: f"{env_id}.reset", 0)
        if lives and "lives" not in info:
            raise EnvError(f"life_loss = true: {env_id} does not report lives in its info.")
        observation, action = spaces.values()
        names = env.names if isinstance(env, ParallelEnv) else ()
        if not is_threaded and (size := mask_size(env, next(iter(info.values()), {}) if names else info)):
            observation = with_mask(observation, size)
        # Here the spaces are converted, once.
        observation_space, action_space = from_any(observation, "observation"), from_any(action, "action")
        spec = EnvironmentSpec(
            env_id,
            observation_space,
            action_space,
            limit,
            checks_actions=bool(prefix),
            life_loss=lives,
            num_agents=len(names) or (env.num_envs if isinstance(env, SuperSuitVectorEnv) else 1),
            agents=names,
        )
        return spec, size, dict(getattr(env, "metadata", None) or {})
