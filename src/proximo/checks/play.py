"""Plays random actions in environments of any kind, and records what they return."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from proximo.collect.jax_vector import JaxAsGymnasium
from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.stepper import EnvironmentSpec
from proximo.envs.gymnasium.vector_environment import VectorEnvironment, VectorOptions
from proximo.envs.libraries import num_agents
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvError, EnvironmentFault
from proximo.spaces import ACTION_MASK, action_dtype, allowed_action, leaves, nested

MIN_STEPS = 8
"""Steps of a play, however long they take."""


@dataclass(frozen=True)
class Play:
    """What ``N`` environments returned in ``T`` steps: observations, an array T+1 N ... for each leaf, and
    arrays T N. ``valid`` is False for autoreset steps."""

    observation: tuple[np.ndarray, ...]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray

    def compared(self) -> tuple[np.ndarray, ...]:
        """The arrays that depend on seeds and actions."""
        return (*self.observation, self.reward, self.terminated, self.truncated)

    def difference(self, other: Play) -> int | None:
        """The first step in which two plays differ, as far as both go; None if they are equal."""
        differ = np.zeros(1 + min(len(self.reward), len(other.reward)), bool)
        for a, b in zip(self.compared(), other.compared(), strict=True):
            rows, columns = (min(sizes) for sizes in zip(a.shape[:2], b.shape[:2], strict=True))
            differ[:rows] |= (a[:rows, :columns] != b[:rows, :columns]).reshape(rows, -1).any(axis=1)
        return int(np.argmax(differ)) if differ.any() else None

    def episode_lengths(self) -> list[int]:
        """The numbers of steps of the episodes that ended."""
        steps, ended = np.cumsum(self.valid, axis=0), self.terminated | self.truncated
        return [int(n) for i in range(ended.shape[1]) for n in np.diff(steps[ended[:, i], i], prepend=0)]


def steppable(env: JaxEnvironment | GymnasiumEnvironment, env_id: str) -> GymnasiumEnvironment:
    """``env`` as a Gymnasium environment."""
    if isinstance(env, GymnasiumEnvironment):
        return env
    spec, count = EnvironmentSpec(env_id, env.observation_space, env.action_space), num_agents(env)
    if count > 1:
        spec = dataclasses.replace(spec, num_agents=count, agents=tuple(f"agent {i}" for i in range(count)))
    make = functools.partial(JaxAsGymnasium, env, jax.random.key(0))
    return GymnasiumEnvironment(spec, make=(lambda: _JaxAgents(make(), spec)) if count > 1 else make)


class _JaxAgents:
    """A JAX environment of several agents with the interface of ``ParallelEnv``."""

    def __init__(self, env: JaxAsGymnasium, spec: EnvironmentSpec):
        self.env, self.close, self.spec, self.present = env, env.close, spec, frozenset(spec.agents)

    def _of_agents(self, x: Any) -> dict[str, Any]:
        return {name: jax.tree.map(lambda of_all, i=i: of_all[i], x) for i, name in enumerate(self.spec.agents)}

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.present = frozenset(self.spec.agents)
        return self._of_agents(self.env.reset(seed=seed)[0]), {}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        space = self.spec.action_space
        absent = nested(space, np.zeros(space.shape, action_dtype(space)))
        *results, _ = self.env.step(
            jax.tree.map(lambda *x: np.stack(x), *(actions.get(name, absent) for name in self.spec.agents))
        )
        observations, rewards, terminated, truncated = map(self._of_agents, results)
        self.present = frozenset(name for name in self.present if not (terminated[name] or truncated[name]))
        return observations, rewards, terminated, truncated, {}


def opened(env: GymnasiumEnvironment, num_envs: int, num_steps: int) -> VectorEnvironment:
    """Make environments, single ones if possible, for plays of ``num_steps`` steps. Raises ``EnvError``."""
    with custom_code_errors(f"Making {env.id}"):
        return env.open(num_envs, num_steps, VectorOptions(num_workers=0, single_environments=True))


def play(
    env: GymnasiumEnvironment, seed: int, num_envs: int = 3, num_steps: int = 300, seconds: float = 2.0, autoreset_seed: int = 0
) -> Play:
    """``play_in`` new environments. All kinds of environments get the same actions."""
    with contextlib.closing(opened(env, num_envs, num_steps)) as vector_env:
        return play_in(vector_env, env, seed, seconds, autoreset_seed)


def play_in(vector_env: VectorEnvironment, env: GymnasiumEnvironment, seed: int, seconds: float, autoreset_seed: int = 0) -> Play:
    """Reset environments, which ``opened`` returned, and take random steps for ``seconds``, but at least ``MIN_STEPS``.

    ``autoreset_seed`` changes the actions of autoreset steps, which the environment must ignore. Raises
    ``EnvError`` with one line if an environment raises, or returns something invalid.
    """
    buffer, t, started = vector_env.buffer, 0, time.perf_counter()
    masks = [i for i, leaf in enumerate(leaves(env.observation_space)) if leaf.path == (ACTION_MASK,)]
    buffer.clear()
    try:
        vector_env.reset(seed)
        while t < len(buffer.action) and (t < MIN_STEPS or time.perf_counter() - started < seconds):
            for i, is_valid in enumerate(buffer.valid[t]):
                rng = np.random.default_rng([0 if is_valid else autoreset_seed, t])
                mask = buffer.observation[masks[0]][t, i] if masks else None
                buffer.action[t, i] = allowed_action(env.action_space, rng, mask)
            vector_env.send(t, 0)
            vector_env.receive(t, 0)
            t += 1
    except EnvironmentFault as fault:
        line = str(fault).splitlines()[0]  # without its traceback
        old = ": expected (observation, reward, terminated, truncated, info)." if "values to unpack" in line else ""
        raise EnvError(f"{line}{old}") from fault
    results = (buffer.reward, buffer.terminated, buffer.truncated, buffer.valid)
    return Play(tuple(array[: t + 1].copy() for array in buffer.observation), *(array[:t].copy() for array in results))
