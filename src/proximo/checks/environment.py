"""Runs all checks that apply to an environment."""

from __future__ import annotations

from proximo.checks import gymnasium_environment, jax_environment, vector_environment
from proximo.checks.finding import Finding, error
from proximo.config import Config
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvironmentFault, ProximoError


def check_environment(
    env: JaxEnvironment | GymnasiumEnvironment,
    config: Config,
    on_check: jax_environment.OnCheck = lambda check: None,
) -> list[Finding]:
    """Run every check that applies to an environment.

    This takes seconds. It takes longer if episodes are long, a step is slow, or JAX compiles for long.

    Args:
        env: The environment.
        config: The settings of the training.
        on_check: Called with the name of each check before it runs. JAX environments only.

    Returns:
        The findings. Those that the user should fix first come first.
    """
    if not isinstance(env, GymnasiumEnvironment):
        return jax_environment.check(env, config, on_check)
    findings: list[Finding] = []
    for make, check in ((env.make, gymnasium_environment.check), (env.make_vector, vector_environment.check)):
        try:
            findings += check(env, config) if make is not None else []
        except (ProximoError, EnvironmentFault) as fault:  # raised outside of a single check
            findings.append(error("steps", str(fault).splitlines()[0]))
    return findings
