"""A run: the training loop, the run directory, checkpoints, evaluation, sinks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "PPO": "proximo.run.agent",
    "Policy": "proximo.run.policy",
    "Result": "proximo.run.api",
    "evaluate": "proximo.run.judgement",
    "load": "proximo.run.agent",
    "load_policy": "proximo.run.policy",
    "make_config": "proximo.run.settings",
    "resume": "proximo.run.api",
    "train": "proximo.run.api",
}

__all__ = ["PPO", "Policy", "Result", "evaluate", "load", "load_policy", "make_config", "resume", "train"]

if TYPE_CHECKING:
    from proximo.run.agent import PPO, load
    from proximo.run.api import Result, resume, train
    from proximo.run.judgement import evaluate
    from proximo.run.policy import Policy, load_policy
    from proximo.run.settings import make_config


def __getattr__(name: str) -> Any:
    # Names are fetched when they are first used: what only reads runs does not wait for JAX.
    if name not in _PUBLIC:
        raise AttributeError(f"module 'proximo.run' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
