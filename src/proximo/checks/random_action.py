"""Random actions for a JAX environment."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.envs.protocol import JaxEnvironment
from proximo.spaces import ACTION_MASK, Box, Discrete, MultiBinary, from_any


def action_of(env: JaxEnvironment, key: Key[Array, ""], observation: PyTree) -> Array:
    """A random action that the action mask in ``observation``, if any, allows.

    Unbounded components are drawn from a standard normal distribution.
    """
    space = from_any(env.action_space, "action")
    mask = observation.get(ACTION_MASK) if isinstance(observation, Mapping) else None
    if isinstance(space, Box):
        low, high = (jnp.asarray(bound, jnp.float32) for bound in space.bounds())
        bounded = space.is_bounded()
        even = jax.random.uniform(key, space.shape, jnp.float32, jnp.where(bounded, low, 0.0), jnp.where(bounded, high, 1.0))
        return jnp.where(bounded, even, jnp.clip(jax.random.normal(key, space.shape), low, high))
    if isinstance(space, MultiBinary):
        bits = jax.random.bernoulli(key, shape=space.shape)
        if mask is not None and mask.size == 2 * space.size:
            may_be_0, may_be_1 = jnp.moveaxis(mask.reshape(*space.shape, 2) != 0, -1, 0)
            bits = jnp.where(may_be_0 & may_be_1, bits, may_be_1)
        return bits.astype(jnp.int32)
    sizes = [space.n] if isinstance(space, Discrete) else list(space.nvec)
    allowed = jnp.ones(sum(sizes), bool) if mask is None or mask.size != sum(sizes) else mask.reshape(-1) != 0
    parts = jnp.split(jnp.where(allowed, 0.0, -jnp.inf), np.cumsum(sizes)[:-1])
    keys = jax.random.split(key, len(sizes))
    chosen = jnp.stack([jax.random.categorical(k, part) for k, part in zip(keys, parts, strict=True)])
    return (chosen + jnp.asarray(space.start)).reshape(space.shape).astype(jnp.int32)
