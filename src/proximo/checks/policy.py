"""Can a policy be made for an environment's spaces, by the settings that it would be trained with?"""

from __future__ import annotations

from typing import Any

import jax

from proximo.checks.finding import Finding, judged
from proximo.config import Config
from proximo.drivers.learning import fresh_policy


def policy(env: Any, config: Config) -> Finding:
    """Whether the network of ``config`` reads the observations of ``env`` and gives its actions; nothing is computed."""

    def made() -> str:
        shapes = jax.eval_shape(lambda key: fresh_policy(key, env, config), jax.random.key(0))
        count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
        return f"One can be made for these spaces, of {count:,} numbers."

    return judged("policy", made)
