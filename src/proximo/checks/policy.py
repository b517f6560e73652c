"""Checks whether a policy can be made for an environment with the settings of a training, and whether it is very large."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import PyTree

from proximo.checks.finding import Finding, run_check, warning
from proximo.collect.learning import fresh_policy
from proximo.config import Config
from proximo.errors import ProximoError
from proximo.networks import ActorCritic

MAX_PARAMETERS = 10_000_000
"""Most parameters of a network without a warning. Two towers of a Nature CNN and a GRU with 512 units have 6.5 million."""
FIXES = {
    "encoder": "make the observations smaller, or set smaller hidden_sizes or cnn_features",
    "memory": "set a smaller memory_size",
    "shared layers": "set smaller shared_sizes",
    "heads": "set smaller head_sizes",
}
"""How to make each part of a network smaller."""


def check_policy(env: Any, config: Config) -> Finding:
    """Check that the network of ``config`` accepts the observations of ``env`` and returns its actions. Computes shapes only."""
    return run_check(
        "policy",
        lambda: f"A policy can be made for these spaces; its arrays have {_count(_shapes(env, config)):,} entries.",
    )


def check_parameters(env: Any, config: Config) -> list[Finding]:
    """A warning if the network has more than ``MAX_PARAMETERS``. None if no policy can be made, which is an error elsewhere."""
    try:
        policy = _shapes(env, config)
    except ProximoError:
        return []
    parts = {
        "encoder": [torso.encoder for torso in policy.torsos],
        "memory": [torso.cell for torso in policy.torsos],
        "shared layers": [torso.shared for torso in policy.torsos],
        "heads": (policy.actor, policy.critic),
    }
    total, name = _count(parts), max(parts, key=lambda name: _count(parts[name]))
    if total <= MAX_PARAMETERS:
        return []
    largest = max(jax.tree.leaves(parts[name]), key=lambda leaf: leaf.size).shape
    return [
        warning(
            "network",
            f"The network has {total / 1e6:.1f} million parameters, {_count(parts[name]) / 1e6:.1f} million of them in the {name}, whose largest "
            f"array is {'×'.join(map(str, largest))}. More than {MAX_PARAMETERS / 1e6:.0f} million make training slow: {FIXES[name]}.",
        )
    ]


def _shapes(env: Any, config: Config) -> ActorCritic:
    return jax.eval_shape(lambda key: fresh_policy(key, env, config), jax.random.key(0))


def _count(tree: PyTree) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))
