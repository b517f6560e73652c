"""The vector environment of a collector or an evaluator, which is made when it is first needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.vector_environment import VectorEnvironment, VectorOptions, reports_waiting
from proximo.errors import EnvError


class LazyVectorEnvironment:
    """A vector environment that is made when it is first needed, and kept until ``close``.

    Its warnings go to ``warn``, which may be set at any time. ``purpose`` names its use in error messages.
    """

    def __init__(self, env: GymnasiumEnvironment, options: VectorOptions, num_envs: int, num_steps: int, purpose: str):
        self.env, self.options, self.purpose = env, options, purpose
        self.num_envs, self.num_steps = num_envs, num_steps
        self.vector_env: VectorEnvironment | None = None
        self._closed = 0
        """How often it was closed."""
        self.warn: Callable[[str], None] = options.warn

    def open(self) -> VectorEnvironment:
        """The vector environment, made now if it is not there yet."""
        if self.vector_env is None:
            options = dataclasses.replace(self.options, warn=lambda message: self.warn(message))
            closed = self._closed
            with custom_code_errors(f"Making {self.env.id} {self.purpose}"):
                vector_env = self.vector_env = self.env.open(self.num_envs, self.num_steps, options)
            if self._closed > closed:  # Ctrl-C does not wait for the thread that makes environments
                self.close()
                raise EnvError(f"{self.env.id} was closed while its environments were made.")
            return vector_env
        return self.vector_env

    def reset(self, seed: int) -> VectorEnvironment:
        """Begin new episodes in the first row of the buffer; the seeds of all environments follow from ``seed``."""
        vector_env = self.open()
        limit = self.options.reset_timeout if vector_env.num_workers else 0.0
        with reports_waiting(self.warn, self.num_envs, self.env.id, limit):
            vector_env.reset(seed)
        return vector_env

    @property
    def restarts(self) -> int:
        """Workers that were lost and started again so far."""
        return 0 if self.vector_env is None else self.vector_env.restarts

    def describe(self) -> str:
        """How the environments are stepped, in words."""
        overlap = ", the policy acting for one half while the other steps" if len(self.open().groups) > 1 else ""
        return f"{self.open().description}{overlap}"

    def close(self) -> None:
        """End the environments and their processes."""
        self._closed += 1
        vector_env, self.vector_env = self.vector_env, None
        if vector_env is not None:
            vector_env.close()
