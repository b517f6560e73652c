"""Plays random actions in environments of any kind, and records what they return."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.collect import jax_vector
from proximo.collect.program_cache import CompiledFunction
from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.actions import allowed_action
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.observations import leaves
from proximo.envs.gymnasium.rollout_buffer import BufferLayout
from proximo.envs.gymnasium.stepper import EnvironmentSpec, Stepper
from proximo.envs.gymnasium.vector_env_adapter import VectorStepper
from proximo.envs.gymnasium.vector_environment import VectorEnvironment, VectorOptions
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvError, EnvironmentFault
from proximo.spaces import ACTION_MASK, Box
from proximo.types import select

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


class JaxVectorEnv:
    """JAX environments with the interface of ``gymnasium.vector.VectorEnv``, with same-step autoreset.

    Every episode starts from the same states, because compiling another reset takes long.
    """

    metadata = {"autoreset_mode": "SameStep"}  # noqa: RUF012

    def __init__(self, env: JaxEnvironment, num_envs: int):
        params = jax.tree.map(jnp.asarray, env.default_params)
        self._action_type = np.float32 if isinstance(env.action_space, Box) else np.int32

        def reset(key: Key[Array, ""]) -> PyTree:
            start = jax_vector.reset(env, jax.random.split(key, num_envs), params)
            return jax_vector.as_template(start, start)  # the types of later steps

        def step(key: Key[Array, ""], count: Array, start: PyTree, carry: PyTree, actions: Array) -> PyTree:
            keys = jax.random.split(jax.random.fold_in(key, count), num_envs)
            states, *seen, _ = jax_vector.step(env, keys, carry[0], actions, carry[1], params)
            return select(seen[2] | seen[3], start, (states, seen[0])), tuple(seen)

        self._reset, self._step = CompiledFunction(reset, brief=True), CompiledFunction(step, brief=True)

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        self._key, self._count = jax.random.key(seed), 0
        self._start = self._carry = self._reset(0, self._key)
        return jax.device_get(self._start[1]), {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        actions, self._count = actions.astype(self._action_type), self._count + 1
        self._carry, seen = self._step(0, self._key, np.uint32(self._count), self._start, self._carry, actions)
        observation, (final, *result) = jax.device_get((self._carry[1], seen))
        return observation, *result, {"final_obs": final}


class Player:
    """Plays random actions in environments of one kind: JAX environments, single Gymnasium environments, or
    what ``make_vector(num_envs)`` returns. All of them take the same actions."""

    def __init__(self, env: JaxEnvironment | GymnasiumEnvironment, env_id: str, make_vector: Callable[[int], Any] | None = None):
        if isinstance(env, GymnasiumEnvironment):
            self.spec, make = env.spec, env.make
        else:
            self.spec, make = EnvironmentSpec(env_id, env.observation_space, env.action_space), None
            # The same object for several plays: its functions compile once.
            make_vector = functools.cache(functools.partial(JaxVectorEnv, env))
        self.is_single = make_vector is None
        self._kind, self._make = (Stepper, make) if make_vector is None else (VectorStepper, make_vector)

    def open(self, num_envs: int, num_steps: int) -> VectorEnvironment:
        """Make environments, for plays of at most ``num_steps`` steps. Raises ``EnvError``."""
        layout = BufferLayout(num_steps, num_envs, self.spec.observation_space, self.spec.action_space)
        with custom_code_errors(f"Making {self.spec.env_id}"):
            return VectorEnvironment(functools.partial(self._kind, self._make, self.spec), layout, VectorOptions(), "")

    def play(self, seed: int, num_envs: int = 3, num_steps: int = 300, seconds: float = 2.0, autoreset_seed: int = 0) -> Play:
        """``play_in`` new environments."""
        with contextlib.closing(self.open(num_envs, num_steps)) as vector_env:
            return self.play_in(vector_env, seed, seconds, autoreset_seed)

    def play_in(self, vector_env: VectorEnvironment, seed: int, seconds: float, autoreset_seed: int = 0) -> Play:
        """Reset environments, which ``open`` returned, and take random steps for ``seconds``, but at least
        ``MIN_STEPS``.

        ``autoreset_seed`` changes the actions of autoreset steps, which the environment must ignore. Raises
        ``EnvError`` with one line if an environment raises, or returns something invalid.
        """
        buffer, t, started = vector_env.buffer, 0, time.perf_counter()
        masks = [i for i, leaf in enumerate(leaves(self.spec.observation_space)) if leaf.path == (ACTION_MASK,)]
        buffer.clear()
        try:
            vector_env.reset(seed)
            while t < len(buffer.action) and (t < MIN_STEPS or time.perf_counter() - started < seconds):
                for i, is_valid in enumerate(buffer.valid[t]):
                    rng = np.random.default_rng([0 if is_valid else autoreset_seed, t])
                    mask = buffer.observation[masks[0]][t, i] if masks else None
                    buffer.action[t, i] = allowed_action(self.spec.action_space, rng, mask)
                vector_env.send(t, 0)
                vector_env.receive(t, 0)
                t += 1
        except EnvironmentFault as fault:
            line = str(fault).splitlines()[0]  # without its traceback
            old = ": expected (observation, reward, terminated, truncated, info)." if "values to unpack" in line else ""
            raise EnvError(f"{line}{old}") from fault
        results = (buffer.reward, buffer.terminated, buffer.truncated, buffer.valid)
        return Play(tuple(array[: t + 1].copy() for array in buffer.observation), *(array[:t].copy() for array in results))
