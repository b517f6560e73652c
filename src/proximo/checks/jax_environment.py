"""All checks of a JAX environment."""

from __future__ import annotations

import functools

from proximo.checks.finding import Finding, run_check
from proximo.checks.jax_play import OnCheck, check_play
from proximo.checks.jax_transforms import (
    check_jit,
    check_keys,
    check_side_effects,
    check_tracing,
    check_vmap,
    compiled_episode,
)
from proximo.config import Config
from proximo.envs.protocol import JaxEnvironment


def check(env: JaxEnvironment, config: Config, on_check: OnCheck) -> list[Finding]:
    """Run all checks of a JAX environment.

    Args:
        env: The environment.
        config: The settings of the training.
        on_check: Called with the name of each check before it runs.

    Returns:
        The findings. If the environment cannot be traced or has side effects, the remaining checks are skipped.
    """
    env_id = config.env.id
    findings: list[Finding] = []
    for name, function in (("tracing", check_tracing), ("side effects", check_side_effects)):
        on_check(name)
        findings.append(run_check(name, functools.partial(function, env, env_id)))
        if findings[-1].level == "error":
            return findings
    compiled = compiled_episode(env)
    for name, function in (("jit", check_jit), ("vmap", check_vmap), ("keys", check_keys)):
        on_check(name)
        findings.append(run_check(name, functools.partial(function, env, env_id, compiled)))
    return findings if any(f.level == "error" for f in findings) else [*findings, *check_play(env, config, on_check)]
