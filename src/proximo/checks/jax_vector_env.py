"""JAX environments as a vector environment of Gymnasium."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.collect import jax_vector
from proximo.collect.compiled_function import CompiledFunction
from proximo.envs.protocol import JaxEnvironment
from proximo.networks.recurrent import select
from proximo.spaces import Box


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
        """Begin episodes, which depend on ``seed``."""
        self._key, self._count = jax.random.key(seed), 0
        self._start = self._carry = self._reset(0, self._key)
        return jax.device_get(self._start[1]), {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        """Take a step in each environment, and reset the ones whose episode ends."""
        actions, self._count = actions.astype(self._action_type), self._count + 1
        self._carry, seen = self._step(0, self._key, np.uint32(self._count), self._start, self._carry, actions)
        observation, (final, *result) = jax.device_get((self._carry[1], seen))
        return observation, *result, {"final_obs": final}

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
