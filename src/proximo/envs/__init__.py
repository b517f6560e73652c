"""Environments: the protocol, the ids, the adapters, our own tasks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proximo.envs.host.environment import HostEnvironment
    from proximo.envs.host.preprocessing import Preprocessing
    from proximo.envs.protocol import JaxEnvironment
    from proximo.envs.registry import listing, make_env

_WHERE = {
    "HostEnvironment": "proximo.envs.host.environment",
    "JaxEnvironment": "proximo.envs.protocol",
    "Preprocessing": "proximo.envs.host.preprocessing",
    "listing": "proximo.envs.registry",
    "make_env": "proximo.envs.registry",
}

__all__ = ["HostEnvironment", "JaxEnvironment", "Preprocessing", "listing", "make_env"]


def __getattr__(name: str) -> Any:
    # Fetched when it is first used: a worker process, which steps environments, must not wait for JAX.
    if name not in _WHERE:
        raise AttributeError(f"module 'proximo.envs' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
