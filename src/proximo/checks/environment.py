"""Runs all checks that apply to an environment."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from proximo.checks import gymnasium_checker, jax_transforms, random_steps
from proximo.checks.action_mask import check_unused_mask
from proximo.checks.autoreset import WatchedVectorEnv, check_autoreset
from proximo.checks.hints import Finding, hints, run_check
from proximo.checks.play import steppable
from proximo.checks.random_steps import check_random_steps
from proximo.collect import jax_vector
from proximo.collect.learning import check_policy
from proximo.config import Config
from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.action_masks import FIX, layers
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvError

MASK_FIX = "return the mask as an entry action_mask of a Dict observation."
VECTORIZED = "vectorized "


def check_names(env: JaxEnvironment | GymnasiumEnvironment) -> list[str]:
    """The checks that ``check_environment`` runs if none fails."""
    if not isinstance(env, GymnasiumEnvironment):
        return ["policy", *jax_transforms.CHECKS, *random_steps.NAMES]
    single = [*random_steps.NAMES, gymnasium_checker.NAME] if env.make else []
    return ["policy", *single, *(f"{VECTORIZED}{name}" for name in (*random_steps.NAMES, "autoreset") if env.make_vector)]


def check_environment(env: JaxEnvironment | GymnasiumEnvironment, config: Config) -> Iterator[Finding]:
    """Run every check that applies to an environment, and yield what each finds. This takes seconds."""
    policies, env_id = [], config.env.id

    def made() -> str:
        policies.append(check_policy(env, config))
        return f"A policy can be made for observations of {env.observation_space} and actions of {env.action_space}."

    yield run_check("policy", env_id, made)
    yield from hints(env, config, *policies)
    if not isinstance(env, GymnasiumEnvironment):
        for name, check in jax_transforms.CHECKS.items():
            yield (finding := run_check(name, env_id, functools.partial(check, env, env_id)))
            if finding.level == "error":
                return
        yield from check_random_steps(steppable(env, env_id), config.env.max_episode_steps, config)
        yield from check_unused_mask([env], jax_vector.info_shapes(env), env, MASK_FIX)
        return
    if (make := env.make) is not None:
        yield from _check_gymnasium(env, make, config, gymnasium_checker.check)
    if (make_vector := env.make_vector) is not None:
        watched = dataclasses.replace(env, make=None, make_vector=lambda number: WatchedVectorEnv(make_vector(number), env))

        def check_resets(one: Any) -> list[Finding]:
            return [run_check("autoreset", env.id, lambda: check_autoreset(WatchedVectorEnv(one, env), watched))]

        for finding in _check_gymnasium(watched, lambda: make_vector(1), config, check_resets):
            yield dataclasses.replace(finding, check=f"{VECTORIZED}{finding.check}")


def _check_gymnasium(
    env: GymnasiumEnvironment, make: Callable[[], Any], config: Config, last_check: Callable[[Any], list[Finding]]
) -> Iterator[Finding]:
    """Check single environments, or a vector environment. ``make`` makes one, for ``last_check``."""
    try:
        with custom_code_errors(env.id), contextlib.closing(make()) as one:
            limit = env.spec.max_episode_steps or getattr(getattr(one, "spec", None), "max_episode_steps", None)
        for finding in check_random_steps(env, limit, config):
            yield finding
            if finding.check == "steps" and finding.level == "error":
                return
        # Made now: the end of a game may end all others in its process.
        with custom_code_errors(env.id), contextlib.closing(make()) as one:
            yield from check_unused_mask(layers(one), one.reset(seed=0)[1], env, FIX)
            yield from last_check(one)
    except EnvError as error:
        yield Finding("steps", "error", str(error))
