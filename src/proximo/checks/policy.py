"""Checks whether a policy can be made for an environment with the settings of a training."""

from __future__ import annotations

from typing import Any

import jax

from proximo.checks.finding import Finding, run_check
from proximo.collect.learning import fresh_policy
from proximo.config import Config


def check_policy(env: Any, config: Config) -> Finding:
    """Check that the network of ``config`` accepts the observations of ``env`` and returns its actions. Computes shapes only."""

    def make() -> str:
        shapes = jax.eval_shape(lambda key: fresh_policy(key, env, config), jax.random.key(0))
        count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
        return f"A policy can be made for these spaces; its arrays have {count:,} entries."

    return run_check("policy", make)
