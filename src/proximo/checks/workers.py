"""Checks whether an environment can be made in worker processes."""

from __future__ import annotations

import cloudpickle

from proximo.checks.finding import Finding, ok, warning
from proximo.envs.gymnasium.environment import GymnasiumEnvironment


def check_workers(env: GymnasiumEnvironment) -> Finding:
    """Check that the function that makes the environment can be sent to worker processes."""
    try:
        size = len(cloudpickle.dumps(env.make))
    except Exception as raised:
        return warning(
            "workers",
            f"The function that makes the environment cannot be sent to worker processes ({type(raised).__name__}: "
            f"{' '.join(str(raised).split())}): train with --num-workers 0, or remove open files, locks and generators from its "
            "arguments.",
        )
    return ok("workers", f"The function that makes the environment can be sent to worker processes ({size:,} bytes).")
