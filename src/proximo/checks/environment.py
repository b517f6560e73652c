"""Runs all checks that apply to an environment."""

from __future__ import annotations

from collections.abc import Iterator

from proximo.checks import gymnasium_environment, jax_environment, vector_environment
from proximo.checks.finding import Finding, error
from proximo.config import Config
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvironmentFault, ProximoError


def check_names(env: JaxEnvironment | GymnasiumEnvironment) -> list[str]:
    """The checks that ``check_environment`` runs if none fails."""
    if not isinstance(env, GymnasiumEnvironment):
        return list(jax_environment.NAMES)
    return [*(gymnasium_environment.NAMES if env.make else ()), *(vector_environment.NAMES if env.make_vector else ())]


def check_environment(env: JaxEnvironment | GymnasiumEnvironment, config: Config) -> Iterator[Finding]:
    """Run every check that applies to an environment, and return what each finds as soon as it ends.

    This takes seconds. It takes longer if episodes are long, a step is slow, or JAX compiles for long.

    Args:
        env: The environment.
        config: The settings of the training.
    """
    if not isinstance(env, GymnasiumEnvironment):
        yield from jax_environment.check(env, config)
        return
    for make, check in ((env.make, gymnasium_environment.check), (env.make_vector, vector_environment.check)):
        try:
            yield from check(env, config) if make is not None else ()
        except (ProximoError, EnvironmentFault) as fault:  # raised outside of a single check
            yield error("steps", str(fault).splitlines()[0])
