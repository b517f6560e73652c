"""A rollout of Gymnasium environments. Collecting fills its NumPy arrays, and the compiled functions of the learner read them.

Inside the compiled functions the same fields are JAX arrays: hence ``Any``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from proximo.envs.gymnasium.rollout_buffer import RolloutBuffer

PackedPolicy = tuple[Array, ...]
"""The small arrays of a policy as one vector, then each large array."""


class StepColumns(NamedTuple):
    """The columns of a packed step. Acting returns one array ``N columns``, because each result of a compiled call costs as much
    as a small network (docs/decisions/0006-gymnasium-collector.md)."""

    env_action: slice
    """The action as the environment takes it, flattened."""
    action: slice
    """The action as it was sampled, flattened."""
    log_prob: int
    value: int

    @classmethod
    def of(cls, env_action: tuple[int, ...], action: tuple[int, ...]) -> StepColumns:
        """The columns for these shapes of one action."""
        first, second = math.prod(env_action), math.prod(env_action) + math.prod(action)
        return cls(slice(0, first), slice(first, second), second, second + 1)

    @property
    def count(self) -> int:
        """Number of columns."""
        return self.value + 1


class PreviousSteps(NamedTuple):
    """For each of several steps, the last valid step before it. Policies that observe the previous action or reward read it.

    A named tuple, because it is an argument of acting, and JAX flattens it faster than a module.
    """

    packed: Any
    """``... columns``: the packed step; NaN before an environment's first step."""
    reward: Any
    """``...``: its raw reward."""


class BurnInSteps(NamedTuple):
    """The last ``B`` steps of a rollout, on which the first sequences of the next one burn in."""

    observation: tuple[Any, ...]
    """B N ..., an array for each leaf of the observation."""
    episode_start: Any
    """B N bool."""
    valid: Any
    """B N bool."""
    previous: PreviousSteps | None
    """B N."""


class GymnasiumRollout(eqx.Module):
    """``T`` steps of ``N`` environments, with the policy that acted. ``GymnasiumPrograms`` makes a ``Rollout`` of it."""

    policy: PackedPolicy
    observation: tuple[Any, ...]
    """T+1 N ..., an array for each leaf of the observation; the last one is what follows the rollout."""
    episode_start: Any
    """T+1 N bool."""
    valid: Any
    """T+1 N bool: False on padding, steps whose action is ignored."""
    packed: Any
    """T N columns: see ``StepColumns``."""
    reward: Any
    """T N: raw."""
    terminated: Any
    """T N bool. A lost life is a termination for the learner."""
    truncated: Any
    """T N bool."""
    bootstrap_value: Any
    """T N: value of the final observation of a truncated episode; else 0."""
    memory: Any
    """T/L N ...: the memory before each sequence, burn-in included."""
    last_memory: Any
    """N ...: the memory after the last step."""
    previous: PreviousSteps | None = None
    """T+1 N: the last valid step before each step; None if the policy does not observe it."""
    burn_in_steps: BurnInSteps | None = None
    """B N: what the first sequences burn in on; None without burn-in."""

    @classmethod
    def of(
        cls, buffer: RolloutBuffer, columns: StepColumns, packed: np.ndarray, bootstrap_value: np.ndarray, **others: Any
    ) -> GymnasiumRollout:
        """The rollout in ``buffer``, which is not copied and not changed.

        An environment that was lost in step t leaves a padding step t. Its episode is truncated in the step before, with the
        value of the last observation as the bootstrap value, written into ``bootstrap_value``.
        """
        terminated, truncated = buffer.terminated | buffer.life_lost, buffer.truncated.copy()
        for t, i in np.argwhere(buffer.lost):
            truncated[t, i] = True  # restarts the running return that scales rewards
            if t and buffer.valid[t - 1, i] and not (buffer.episode_start[t, i] or terminated[t - 1, i]):
                truncated[t - 1, i], bootstrap_value[t - 1, i] = True, packed[t, i, columns.value]
        return cls(
            observation=buffer.observation,
            episode_start=buffer.episode_start,
            valid=buffer.valid,
            packed=packed,
            reward=buffer.reward,
            terminated=terminated,
            truncated=truncated,
            bootstrap_value=bootstrap_value,
            **others,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickle by calling the class: otherwise Equinox never frees the module.
        return type(self), tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    @classmethod
    def joined(cls, parts: Sequence[GymnasiumRollout], policy: PackedPolicy) -> GymnasiumRollout:
        """The rollout of ``policy`` on the environments of all ``parts``, which follow each other."""

        def join(name: str) -> Any:
            axis = int(name != "last_memory")
            fields = [getattr(part, name) for part in parts]
            return jax.tree.map(lambda *arrays: np.concatenate(arrays, axis), *fields)

        names = [field.name for field in dataclasses.fields(cls) if field.name != "policy"]
        return cls(policy=policy, **{name: join(name) for name in names})

    def invalid(self) -> GymnasiumRollout:
        """A rollout of the same shapes without a valid step, in the place of one that was lost. Its arrays have numbers that the
        policy accepts, which nothing learns from."""
        never, burn_in = np.zeros_like(self.valid), self.burn_in_steps
        return dataclasses.replace(
            self,
            valid=never,
            terminated=never[:-1],
            truncated=~never[:-1],  # restarts the running return that scales rewards
            bootstrap_value=np.zeros_like(self.bootstrap_value),
            burn_in_steps=burn_in and burn_in._replace(valid=np.zeros_like(burn_in.valid)),
        )

    def bad_environment(self, first_env: int) -> str:
        """Which environment returned NaN or infinity, and in which step, in words; empty if none did. ``first_env`` is the number of the
        first environment of this rollout."""
        checked = [("observation", array, self.valid) for array in self.observation]
        checked += [("reward", self.reward, self.valid[:-1]), ("final observation", self.bootstrap_value, self.truncated)]
        for name, array, mask in checked:
            if np.issubdtype(array.dtype, np.floating):
                bad = ~np.isfinite(array).all(axis=tuple(range(2, array.ndim))) & mask
                if bad.any():
                    t, i = np.argwhere(bad)[0]
                    return f"environment {first_env + i} gave it as {name} in step {t} of the rollout"
        return ""
