"""The environment that the settings of a training describe: how it is made, preprocessed and stepped."""

import dataclasses
import inspect
import json
import math
from collections.abc import Callable
from typing import Any

from proximo.collect.program_cache import reuse
from proximo.config import GYMNASIUM_ONLY, LEAVES, Config, override
from proximo.config.coercion import wrapper_call
from proximo.config.custom import Custom, is_lost, resolve
from proximo.config.schema import WORKER_SETTINGS
from proximo.custom_code import custom_code_errors
from proximo.envs import Environment, GymnasiumEnvironment, Preprocessing, make_env
from proximo.envs.custom import from_object
from proximo.envs.gymnasium.vector_environment import VectorEnvironment, VectorOptions, reports_waiting
from proximo.envs.libraries import has_opponent, unwrapped
from proximo.errors import ConfigError, EnvError
from proximo.jax_setup import cores
from proximo.spaces import STATE, Box, tree


def environment(config: Config) -> Environment:
    """The environment of ``config``. A JAX environment is the same object for the same settings and class, so that compiled
    functions are found again. A class that was defined again (a reloaded module, a notebook's cell) is another class.

    Raises ``ConfigError`` for a setting that has no effect on this environment, and ``EnvError`` if it cannot be made.
    """
    env = make_env(config.env.id, config.env.env_settings, preprocessing_of(config), config.given.get("id") != config.env.id)
    check_settings(config, env)
    return _reused(config, env)


def _reused(config: Config, env: Environment) -> Environment:
    if isinstance(env, GymnasiumEnvironment):
        return env
    added = config.env.agent_id, STATE in config.network.privileged
    settings = json.dumps([config.env.env_settings, config.env.levels, added], sort_keys=True, default=repr)
    draw = Custom(_randomize(config))  # equal only to itself
    return reuse(("environment", type(unwrapped(env)), config.env.id, settings, draw), lambda: env)


def evaluation_environment(
    config: Config,
    env: Environment,
    other: Any = None,
    env_settings: dict[str, Any] | None = None,
    levels: str | None = None,
    from_file: bool = False,
) -> tuple[Environment, Config]:
    """The environment of an evaluation, and the settings that describe it.

    Args:
        config: settings of the training.
        env: the environment of the training.
        other: id of another environment, or an object; None or empty: the environment of the training.
        env_settings: parameters of the environment. They are added to those of the training if both ids name the same
            library, as in ``minigrid:…``.
        levels: range of level seeds; None: the training's.
        from_file: as in ``make_env``, for ``other``.

    Raises:
        ConfigError: the policy of the training does not fit the environment, or it does not have one of the parameters.
        EnvError: ``other`` is unknown, or is no environment.
    """
    is_same, env_settings = other is None or (isinstance(other, str) and not other), env_settings or {}
    if is_same and not env_settings and levels is None:
        return env, config
    if is_same and is_lost(config.env.id):
        given = f"env_settings = {env_settings}" if env_settings else f"levels = {levels!r}"
        raise ConfigError(
            f"{given} requires a new environment, but {config.env.id} was given as an object: use agent.evaluate, or pass the object "
            "as env=…."
        )
    if isinstance(other, str) and is_lost(other):
        raise EnvError(
            f"eval_env = {other} was an object in the program that trained the run: pass it again, as proximo.load(run, eval_env=…)."
        )
    config = config if levels is None else override(config, {"levels": levels})
    if is_same:
        config = override(config, {"env_settings": env_settings} if env_settings else {})
        made = environment(config)
    else:
        env_id, config = other, override(config, {"randomize": "none"})  # which is for the environment of the training
        if isinstance(other, str):
            library, of_training = other.rpartition(":")[0], config.env.id.rpartition(":")[0]
            env_settings = {**(config.env.env_settings if library and library == of_training else {}), **env_settings}
            made = make_env(other, env_settings, preprocessing_of(config), from_file)
        else:
            env_id, made = from_object(other, env_settings, preprocessing_of(config))
        config = dataclasses.replace(config, env=dataclasses.replace(config.env, id=env_id, env_settings=env_settings))
        steps_itself = not isinstance(made, GymnasiumEnvironment) or made.make is None
        names = ("overlap", "stagger_steps", "learner_lag", *(WORKER_SETTINGS if steps_itself else ()))  # only for the training
        config = override(config, {name: LEAVES[name].default for name in names})
        check_settings(config, made)
        made = _reused(config, made) if isinstance(other, str) else made
    check_same_spaces(env, made, config.env.id)
    return made, config


def evaluation_during_training(
    config: Config, env: Environment, other: Any = None, env_settings: dict[str, Any] | None = None
) -> tuple[Environment, Config]:
    """``evaluation_environment`` for the evaluations of a training, whose errors name ``eval_env_settings``.
    ``other`` and ``env_settings`` come from ``config`` by default."""
    from_file = other is None and config.given.get("eval_env") != config.run.eval_env
    other = config.run.eval_env if other is None else other
    env_settings = config.run.eval_env_settings if env_settings is None else env_settings
    try:
        return evaluation_environment(config, env, other, env_settings, from_file=from_file)
    except ConfigError as error:
        # Other names come from the env_settings of the training, which are added to these.
        if str(error).startswith("env_settings") and any(name in str(error) for name in env_settings):
            raise ConfigError(f"eval_{error}") from error
        raise


def check_same_spaces(env: Environment, other: Environment, other_id: str) -> None:
    """Raise a ``ConfigError`` unless a policy for ``env`` fits ``other``. Bounds of observations may differ,
    except for bytes, which the policy scales by their bounds."""

    def without_bounds(leaf: Any) -> Any:
        is_free = isinstance(leaf, Box) and leaf.dtype != "uint8"
        return dataclasses.replace(leaf, low=-math.inf, high=math.inf) if is_free else leaf

    for role, compared in (("observation", lambda space: tree(without_bounds, space)), ("action", lambda space: space)):
        space, other_space = (getattr(e, f"{role}_space") for e in (env, other))
        if compared(space) != compared(other_space):
            raise ConfigError(
                f"The {role} space of {other_id} is {other_space}, but the policy is for {space}: choose an environment and settings "
                "of it that have this space."
            )


def preprocessing_of(config: Config) -> Preprocessing:
    """The preprocessing of a Gymnasium environment."""
    settings = {name: getattr(config.env, name) for name in vars(Preprocessing()) if name not in ("needs_state", "randomize")}
    settings |= {"wrappers": tuple(map(wrapper_call, config.env.wrappers)), "needs_state": STATE in config.network.privileged}
    return Preprocessing(**settings, randomize=_randomize(config))


def _randomize(config: Config) -> Callable[..., Any] | None:
    if (given := config.env.randomize) == "none":
        return None
    draw = resolve("randomize", given, ())
    if inspect.isclass(draw) or not callable(draw):
        raise ConfigError(f"randomize = {given} is no function: expected one (docs/randomization.md).")
    return draw


def has_vector_env(env: Environment) -> bool:
    """Whether ``env`` has its own vector environment, which begins episodes itself. ``stagger_steps`` would exclude it."""
    return isinstance(env, GymnasiumEnvironment) and env.make_vector is not None


def vector_options(config: Config, warn: Callable[[str], None] = lambda message: None) -> VectorOptions:
    """How Gymnasium environments are stepped. ``warn`` receives messages about slow starts and lost workers."""
    env = config.env
    return VectorOptions(
        num_workers=env.num_workers,
        single_environments=env.num_workers >= 0 or env.overlap or env.stagger_steps > 0,
        num_groups=2 if env.overlap else 1,
        stagger_steps=env.stagger_steps,
        step_timeout=env.worker_settings.step_timeout,
        max_restarts=env.worker_settings.max_restarts,
        cores=cores(),
        warn=warn,
    )


def check_settings(config: Config, env: Environment) -> None:
    """Raise ``ConfigError`` for a setting that has no effect on ``env``."""
    if config.env.opponents != "current" and not has_opponent(env):
        raise ConfigError(f"opponents is for two-player games, such as pgx:connect_four: it has no effect on {config.env.id}.")
    if isinstance(env, GymnasiumEnvironment):
        if config.run.seeds > 1 and config.run.seeds_mode == "vmap":
            raise ConfigError(
                f"seeds_mode = vmap: {config.env.id} is a Gymnasium environment, where seeds train one after the other: use serial or auto."
            )
        env.check(config.env.num_envs, vector_options(config))
        return
    for name in GYMNASIUM_ONLY:
        leaf = LEAVES[name]
        if getattr(getattr(config, leaf.group), name) != leaf.default:
            raise ConfigError(f"{name} is for Gymnasium environments: it has no effect on {config.env.id}, a JAX environment.")


class LazyVectorEnvironment:
    """A vector environment that is made when it is first needed, and kept until ``close``. Its warnings go
    to ``warn``, which may be set at any time. ``part`` has the numbers of its environments among all of the
    training, and ``purpose`` names its use in error messages."""

    def __init__(self, env: GymnasiumEnvironment, options: VectorOptions, part: range, num_steps: int, purpose: str):
        self.env = dataclasses.replace(env, spec=dataclasses.replace(env.spec, first_env=part.start))
        self.options, self.num_envs, self.num_steps, self.purpose = options, len(part), num_steps, purpose
        self.vector_env: VectorEnvironment | None = None
        self._times_closed = 0
        self.warn: Callable[[str], None] = options.warn

    def open(self) -> VectorEnvironment:
        """The vector environment, made now if it is not there yet."""
        if (vector_env := self.vector_env) is None:
            options = dataclasses.replace(self.options, warn=lambda message: self.warn(message))
            closed = self._times_closed
            with custom_code_errors(f"Making {self.env.id} {self.purpose}"):
                vector_env = self.vector_env = self.env.open(self.num_envs, self.num_steps, options)
            if self._times_closed > closed:  # Ctrl-C does not wait for the thread that makes environments
                self.close()
                raise EnvError(f"{self.env.id} was closed while its environments were made.")
        return vector_env

    def reset(self, seed: int) -> VectorEnvironment:
        """Begin new episodes in the first row of the buffer, with seeds that follow from ``seed``."""
        vector_env = self.open()
        limit = self.options.reset_timeout if vector_env.num_workers else 0.0
        with reports_waiting(self.warn, self.num_envs, self.env.id, limit):
            vector_env.reset(seed)
        return vector_env

    @property
    def restarts(self) -> int:
        """Workers that were lost and started again so far."""
        return 0 if self.vector_env is None else self.vector_env.restarts

    def describe(self) -> str:
        """How the environments are stepped, in words."""
        overlap = ", the policy acting for one half while the other steps" if len(self.open().groups) > 1 else ""
        return f"{self.open().description}{overlap}"

    def close(self) -> None:
        """End the environments and their processes."""
        self._times_closed += 1
        vector_env, self.vector_env = self.vector_env, None
        if vector_env is not None:
            vector_env.close()
