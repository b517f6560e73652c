"""Checks whether a JAX environment gives the same results under ``jit`` and ``vmap``, without side effects, and uses its keys."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.checks.finding import Finding, error, ok, run_check, warning
from proximo.checks.random_action import action_of
from proximo.collect import jax_vector
from proximo.custom_code import custom_code_errors
from proximo.envs.protocol import JaxEnvironment

EAGER_STEPS = 3
TOLERANCE = 1e-4
Episodic = Callable[[Any, Any], list[Any]]
TRACE_FIX = (
    "Under jit, Python cannot branch on an array: use jnp.where, jax.lax.cond or jax.lax.select, and keep all state in what reset "
    "and step return."
)
TRACER_ERRORS = (
    "TracerBool", "ConcretizationType", "TracerArray", "TracerInteger", "UnexpectedTracer", "NonConcreteBoolean",
)  # fmt: skip


def check_tracing(env: JaxEnvironment, env_id: str) -> Finding:
    """Check that reset and step can be traced, and that step returns the shapes and types of reset."""

    def trace() -> str:
        jax_vector.check_env(env, env_id)
        return "reset and step can be traced, and keep shapes and types."

    traced = run_check("tracing", trace)
    branches = traced.level == "error" and any(name in traced.message for name in TRACER_ERRORS)
    return error("tracing", f"{traced.message} {TRACE_FIX}") if branches else traced


def compiled_episode(env: JaxEnvironment) -> Episodic:
    """A compiled function of two keys that resets, takes some steps, and returns what each of them returned."""
    return jax.jit(functools.partial(_episode, env))


def _episode(env: JaxEnvironment, key: Key[Array, ""], actions: Key[Array, ""]) -> list[PyTree]:
    """What a reset and ``EAGER_STEPS`` steps return. ``key`` is for the environment, ``actions`` for random actions."""
    key, first = jax.random.split(key)
    state, observation = env.reset(first, env.default_params)
    returned: list[PyTree] = [(state, observation)]
    for t in range(EAGER_STEPS):
        action = action_of(env, jax.random.fold_in(actions, t), observation)
        state, observation, reward, terminated, truncated, _ = env.step(
            jax.random.fold_in(key, t), state, action, env.default_params
        )
        returned.append((state, observation, reward, terminated, truncated))
    return returned


def _differ(one: PyTree, other: PyTree) -> bool:
    """Whether two results differ by more than rounding."""

    def close(a: Any, b: Any) -> bool:
        a, b = (np.asarray(jax.random.key_data(x) if _is_key(x) else x) for x in (a, b))
        if a.dtype.kind in "fc":
            return a.shape == b.shape and np.allclose(a, b, TOLERANCE, TOLERANCE, equal_nan=True)
        return np.array_equal(a, b)

    return not all(map(close, jax.tree.leaves(one), jax.tree.leaves(other)))


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def check_side_effects(env: JaxEnvironment, env_id: str) -> Finding | str:
    """Check that reset and step depend only on their arguments: they do not change ``self``, and a key repeats its result."""
    key = jax.random.key(0)
    before = _attributes(env)
    with custom_code_errors(env_id):
        one = _episode(env, key, key)
        changed = sorted(name for name, value in _attributes(env).items() if before.get(name) != value)
        other = _episode(env, key, key)
    if changed:
        return error(
            "side effects",
            f"{env_id} changes self.{changed[0]} in reset or step: under jit this happens only once, while the function is traced. "
            "Keep it in the state that reset and step return.",
        )
    if _differ(one, other):
        return error(
            "side effects",
            f"The same key gives a different result the second time: {env_id} uses something besides its arguments (NumPy's or Python's "
            "generator, a global), which jit would freeze. Draw from the key with jax.random.",
        )
    return "reset and step depend only on their arguments: the same key gives the same result."


def _attributes(env: Any) -> dict[str, Any]:
    """The attributes of the environment in a form that can be compared: identities of objects and of the contents of containers."""

    def mark(value: Any) -> Any:
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | set) else ()
        return id(value), [id(part) for part in inside]

    return {name: mark(value) for name, value in getattr(env, "__dict__", {}).items()}


def check_jit(env: JaxEnvironment, env_id: str, compiled: Episodic) -> Finding | str:
    """Check that compiled steps return the same as steps in Python."""
    key = jax.random.key(1)
    with custom_code_errors(env_id):
        differ = _differ(_episode(env, key, key), compiled(key, key))
    if differ:
        return error(
            "jit",
            f"{env_id} gives different results with and without jit: it reads something while it is traced instead of when it runs. "
            "Compute everything from the arguments, with jax.numpy.",
        )
    return f"A reset and {EAGER_STEPS} steps give the same results with and without jit."


def check_vmap(env: JaxEnvironment, env_id: str, compiled: Episodic) -> Finding | str:
    """Check that steps under ``vmap`` return the same as single steps."""
    keys = jax.random.split(jax.random.key(2), 3)
    with custom_code_errors(env_id):
        together = jax.jit(jax.vmap(functools.partial(_episode, env)))(keys, keys)
        apart = [compiled(k, k) for k in keys]
    if any(_differ(jax.tree.map(lambda x, i=i: x[i], together), one) for i, one in enumerate(apart)):
        return error(
            "vmap",
            f"{env_id} gives different results under vmap and one by one: look for a callback, or for a random number that is not "
            "drawn from the key.",
        )
    return "Environments under vmap give the same results as one by one."


def check_keys(env: JaxEnvironment, env_id: str, compiled: Episodic) -> Finding:
    """Check that another key gives another episode, with the same actions."""
    with custom_code_errors(env_id):
        seen = [[part[1:] for part in compiled(jax.random.key(seed), jax.random.key(0))] for seed in range(6)]
    if not any(_differ(seen[0], other) for other in seen[1:]):
        return warning(
            "keys",
            f"Six keys give the same first {EAGER_STEPS} steps: either nothing is random there, which is fine if it is intended (all "
            "environments then start alike), or reset and step ignore their key. Draw from the key with jax.random.",
        )
    return ok("keys", "Different keys give different episodes.")
