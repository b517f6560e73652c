"""Checks whether a policy can be made for an environment with the settings of a training, and whether it is very large."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import PyTree

from proximo.checks.finding import Finding, run_check, warning
from proximo.collect.learning import policy_shapes
from proximo.config import Config
from proximo.networks import ActorCritic

MAX_PARAMETERS = 10_000_000
"""Largest number of parameters without a warning. Two towers of a Nature CNN and a GRU with 512 units have 6.5 million."""
FIXES = {
    "encoder": "make the observations smaller, or set smaller hidden_sizes or cnn_features",
    "memory": "set a smaller memory_size",
    "shared layers": "set smaller shared_sizes",
    "heads": "set smaller head_sizes",
}
"""How to make each part of a network smaller."""


def check_policy(env: Any, config: Config) -> Finding:
    """Check that the network of ``config`` accepts the observations of ``env``, returns its actions, and is not very large. Computes
    shapes only."""

    def make() -> Finding | str:
        policy = policy_shapes(env, config)
        fits = f"A policy can be made for these spaces; its arrays have {_count(policy):,} entries."
        return next(iter(check_size(policy)), fits)

    return run_check("policy", make)


def check_size(policy: ActorCritic) -> list[Finding]:
    """Warn if the network has more than ``MAX_PARAMETERS``. The leaves of ``policy`` may be ``jax.ShapeDtypeStruct``."""
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
            "policy",
            f"The network has {total / 1e6:.1f} million parameters, {_count(parts[name]) / 1e6:.1f} million of them in the {name} (largest "
            f"array: {'×'.join(map(str, largest))}). More than {MAX_PARAMETERS / 1e6:.0f} million make training slow: {FIXES[name]}.",
        )
    ]


def _count(tree: PyTree) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))
