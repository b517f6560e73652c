"""All checks of a JAX environment."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from proximo.checks.finding import Finding, run_check
from proximo.checks.jax_play import check_play
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

NAMES = ("tracing", "side effects", "jit", "vmap", "keys", "numbers", "range", "episodes", "time limit", "speed")


def check(env: JaxEnvironment, config: Config) -> Iterator[Finding]:
    """Run all checks of a JAX environment, as in ``check_environment``. If the environment cannot be traced or has side effects, the
    remaining checks are skipped."""
    env_id = config.env.id
    for name, function in (("tracing", check_tracing), ("side effects", check_side_effects)):
        yield (finding := run_check(name, functools.partial(function, env, env_id)))
        if finding.level == "error":
            return
    compiled = compiled_episode(env)
    failed = False
    for name, function in (("jit", check_jit), ("vmap", check_vmap), ("keys", check_keys)):
        yield (finding := run_check(name, functools.partial(function, env, env_id, compiled)))
        failed |= finding.level == "error"
    if not failed:
        yield from check_play(env, config)
