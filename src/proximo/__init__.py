"""proximo: Proximal Policy Optimization, complete."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from proximo.runtime import prevent_deadlock

__version__ = "0.1.0"

prevent_deadlock()

_PUBLIC = {
    "ActorCritic": "proximo.networks",
    "CheckpointError": "proximo.errors",
    "Config": "proximo.config",
    "ConfigError": "proximo.errors",
    "DeviceDriver": "proximo.drivers",
    "EnvError": "proximo.errors",
    "JaxEnvironment": "proximo.envs",
    "Minibatch": "proximo.ppo",
    "PPO": "proximo.run",
    "Policy": "proximo.run",
    "ProximoError": "proximo.errors",
    "Result": "proximo.run",
    "RunDirectoryError": "proximo.errors",
    "TrainingError": "proximo.errors",
    "evaluate": "proximo.run",
    "load": "proximo.run",
    "load_policy": "proximo.run",
    "make_config": "proximo.run",
    "make_env": "proximo.envs",
    "make_functions": "proximo.drivers",
    "make_train": "proximo.drivers",
    "pull": "proximo.publish",
    "push": "proximo.publish",
    "resume": "proximo.run",
    "train": "proximo.run",
}

__all__ = [
    "PPO",
    "ActorCritic",
    "CheckpointError",
    "Config",
    "ConfigError",
    "DeviceDriver",
    "EnvError",
    "JaxEnvironment",
    "Minibatch",
    "Policy",
    "ProximoError",
    "Result",
    "RunDirectoryError",
    "TrainingError",
    "__version__",
    "callbacks",
    "evaluate",
    "load",
    "load_policy",
    "make_config",
    "make_env",
    "make_functions",
    "make_train",
    "pull",
    "push",
    "resume",
    "train",
]

if TYPE_CHECKING:
    from proximo import callbacks
    from proximo.config import Config
    from proximo.drivers import DeviceDriver, make_functions, make_train
    from proximo.envs import JaxEnvironment, make_env
    from proximo.errors import CheckpointError, ConfigError, EnvError, ProximoError, RunDirectoryError, TrainingError
    from proximo.networks import ActorCritic
    from proximo.ppo import Minibatch
    from proximo.publish import pull, push
    from proximo.run import PPO, Policy, Result, evaluate, load, load_policy, make_config, resume, train


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    # Names are fetched when they are first used, so that `proximo --help` does not wait for JAX.
    if name == "callbacks":
        return importlib.import_module("proximo.callbacks")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'proximo' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
