"""Defaults by kind of environment, for environments that have no preset: ``KIND.yaml`` has groups of settings with their provenance."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

from proximo.serialization import read_yaml

KINDS = {
    "images": "images",
    "memory": "a policy with memory",
    "continuous": "continuous control",
    "discrete": "discrete actions",
}
"""What each kind is called in messages."""


@functools.cache
def load(kind: str) -> dict[str, Any]:
    """The groups of settings of a kind, with their ``provenance``."""
    return read_yaml((resources.files(__name__) / f"{kind}.yaml").read_bytes())


def names() -> frozenset[str]:
    """Every setting that a kind has."""
    groups = [group for kind in KINDS for group in load(kind).values() if isinstance(group, dict)]
    return frozenset(name for group in groups for name in group)
