"""What a callback may take from the training while its hook runs: the policy, and the whole state as a run directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from proximo.config import Config
from proximo.envs.protocol import Environment
from proximo.evaluation.policy import Policy
from proximo.storage.save_run import save_run
from proximo.types import TrainState


@dataclass(frozen=True)
class CallbackContext:
    """Access to the state of one seed at ``step``. ``state`` raises a ``ConfigError`` once the next update has begun, which uses the state up."""

    config: Config
    env: Environment
    step: int
    evaluation: dict[str, Any] | None
    """Summary of the last evaluation; None before the first one."""
    state: Callable[[], TrainState]

    def policy(self) -> Policy:
        """A copy of the policy, which later updates do not change."""
        return Policy(jax.tree.map(jnp.copy, self.state().learner.policy), self.env, self.config, self.step)

    def save(self, folder: Path) -> Path:
        """Write the whole state as a run directory."""
        return save_run(folder, self.config, self.step, self.state(), self.evaluation)
