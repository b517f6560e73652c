"""The state of a training while a callback is told of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

from proximo.errors import ConfigError
from proximo.run.member import Member
from proximo.run.policy import Policy
from proximo.run.program import HostProgram, Program
from proximo.run.saving import save_run
from proximo.types import TrainState


class StateOf:
    """The state of one member at ``step``, as long as ``is_there()``: the next update uses it up."""

    def __init__(
        self,
        program: Program | HostProgram,
        member: Member,
        state: TrainState,
        index: int,
        step: int,
        is_there: Callable[[], bool],
    ):
        self._program, self._member, self._state, self._index = program, member, state, index
        self._step, self._is_there = step, is_there

    def _own(self) -> TrainState:
        if not self._is_there():
            raise ConfigError(f"The state of step {self._step} was asked for when training had gone on: take it within the hook.")
        return self._program.member(self._state, self._index)

    def policy(self) -> Policy:
        """A copy, which later updates leave as it is."""
        network = jax.tree.map(jnp.copy, self._own().learner.policy)
        return Policy(network, self._program.env, self._member.config, self._step)

    def save(self, folder: Path) -> Path:
        """The whole state as a run directory."""
        return save_run(folder, self._member.config, self._step, self._own(), self._member.last_evaluation)
