"""Checks whether a JAX environment has no side effects, and is the same under ``jit`` and ``vmap``."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.collect import jax_vector
from proximo.envs.libraries import num_agents, unwrapped
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvError
from proximo.spaces import ACTION_MASK, Box, Joint, allowed_action, nested
from proximo.types import is_key

STEPS = 3
TOLERANCE = 1e-4


def check_tracing(env: JaxEnvironment, env_id: str) -> str:
    """Check that reset and step can be traced and fit to each other. Raises ``EnvError``."""
    try:
        jax_vector.check_env(env, env_id)
    except EnvError as fault:
        if not isinstance(fault.__cause__, jax.errors.JAXTypeError | jax.errors.UnexpectedTracerError):
            raise
        raise EnvError(
            f"{fault} Under jit, Python cannot branch on an array: use jnp.where, jax.lax.cond or "
            "jax.lax.select, and keep all state in what reset and step return."
        ) from fault
    return "reset and step can be traced, and keep shapes and types."


def check_side_effects(env: JaxEnvironment, env_id: str) -> str:
    """Check that reset and step depend only on their arguments and change nothing. Raises ``EnvError``."""
    attributes = getattr(unwrapped(env), "__dict__", {})
    key, before = jax.random.key(0), dict(attributes)
    once = _episode(env, key)
    if changed := [name for name, value in attributes.items() if before.get(name) is not value]:
        raise EnvError(
            f"{env_id} changes self.{changed[0]} in reset or step: under jit this happens only once, while "
            "the function is traced. Keep it in the state that reset and step return."
        )
    if _differ(once, _episode(env, key)):
        raise EnvError(
            f"The same key gives a different result the second time: {env_id} uses something besides its "
            "arguments (NumPy's or Python's generator, a global), which jit would freeze. Draw from the "
            "key with jax.random."
        )
    return "reset and step depend only on their arguments: the same key gives the same result."


def check_transforms(env: JaxEnvironment, env_id: str) -> str:
    """Check that compiled and vectorized steps return the same as steps in Python. Raises ``EnvError``."""
    keys = jax.random.split(jax.random.key(0), 3)
    together = _episode(env, keys, lambda function: jax.jit(jax.vmap(function)))
    if _differ(jax.tree.map(lambda x: x[0], together), _episode(env, keys[0])):
        raise EnvError(
            f"{env_id} gives different results in Python and under jit and vmap: it reads something while "
            "it is traced instead of when it runs, calls back into Python, or draws a random number that "
            "is not from the key. Compute everything from the arguments, with jax.numpy."
        )
    return f"A reset and {STEPS} steps give the same results in Python and under jit and vmap."


CHECKS = {"tracing": check_tracing, "side effects": check_side_effects, "jit and vmap": check_transforms}
"""In this order. Each needs the ones before."""


def _episode(env: JaxEnvironment, keys: Key[Array, "*N"], transform: Callable[[Any], Any] = lambda function: function) -> PyTree:
    """What a reset and ``STEPS`` random steps return. ``transform`` is applied to both functions."""
    space, params, count = env.action_space, env.default_params, num_agents(env)
    lead = keys.shape if count == 1 else (*keys.shape, count)
    step = transform(lambda key, t, state, action: env.step(jax.random.fold_in(key, t), state, action, params)[:-1])
    returned = [transform(lambda key: env.reset(key, params))(keys)]
    for t in range(STEPS):
        state, observation = returned[-1][:2]
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        masks = [None] * math.prod(lead) if mask is None else np.asarray(mask).reshape(math.prod(lead), -1)
        actions = np.stack([allowed_action(space, np.random.default_rng([0, t]), one) for one in masks])
        dtype = jnp.float32 if isinstance(space, Box | Joint) else jnp.int32
        action = nested(space, jnp.asarray(actions.reshape((*lead, *space.shape)), dtype))
        returned.append(step(keys, jnp.full(keys.shape, t), state, action))
    return returned


def _differ(one: PyTree, other: PyTree) -> bool:
    """Whether two results differ by more than rounding."""

    def close(a: Any, b: Any) -> bool:
        if isinstance(a, jax.Array) and is_key(a):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        a, b = np.asarray(a), np.asarray(b)
        tolerance = TOLERANCE if a.dtype.kind in "fc" else 0
        return a.shape == b.shape and np.allclose(a, b, tolerance, tolerance, equal_nan=True)

    return not all(map(close, jax.tree.leaves(one), jax.tree.leaves(other)))
