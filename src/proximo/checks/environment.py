"""All checks that suit an environment, in order."""

from __future__ import annotations

from typing import Any

from proximo.checks import in_jax, plain, vectorised
from proximo.checks.finding import Finding, error
from proximo.envs.host.environment import HostEnvironment
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvironmentFault, ProximoError


def check_environment(
    env: JaxEnvironment | HostEnvironment, env_id: str, num_envs: int = 8, limit: int = 0, said: in_jax.Said = lambda check: None
) -> list[Finding]:
    """The findings of every check, in the order of what a reader should mend first.

    ``num_envs`` is how many a training would step together, ``limit`` its ``max_episode_steps``, 0 for none. Takes seconds, and longer where
    episodes are long, a step is slow, or JAX compiles for long; for environments in JAX ``said`` is told which check begins.
    """
    if not isinstance(env, HostEnvironment):
        return in_jax.look(env, env_id, limit, said)
    findings: list[Finding] = []
    for exists, look in ((env.make is not None, plain.look), (env.make_vector is not None, vectorised.look)):
        if exists:
            findings += _whole(look, env, num_envs)
    return findings


def _whole(look: Any, env: HostEnvironment, num_envs: int) -> list[Finding]:
    """The findings of ``look``; a fault that no single check has caught is one too."""
    try:
        return look(env, num_envs)
    except (ProximoError, EnvironmentFault) as fault:
        return [error("steps", str(fault).splitlines()[0])]
