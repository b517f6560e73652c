"""One JAX environment as ``N``: reset where an episode ended, limits of time, episode statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key, PyTree

from proximo.envs.host.environment import HostEnvironment
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import ConfigError, EnvError
from proximo.networks.memory import select
from proximo.spaces import Box, LeafSpace, MultiBinary, Space, from_any, tree
from proximo.users_code import users_code

SEEDS_AXIS = "seeds"


def anywhere(condition: Bool[Array, "*rows"], seeds_axis: bool) -> Bool[Array, ""]:
    """Whether the condition holds in any environment; with ``seeds_axis``, of any seed that is vmapped along.

    Reduced over the seeds too, the answer is one for all, so that ``lax.cond`` stays a branch under vmap.
    """
    answer = jnp.any(condition)
    if not seeds_axis:
        return answer
    try:
        return jax.lax.pmax(answer.astype(jnp.int32), SEEDS_AXIS).astype(bool)
    except NameError as error:
        raise ConfigError(f"seeds_axis = True needs the axis: jax.vmap(…, axis_name={SEEDS_AXIS!r}).") from error


def where_any(condition: Bool[Array, " N"], compute: Callable[[], PyTree], otherwise: PyTree, seeds_axis: bool) -> PyTree:
    """Rows of ``compute()`` where ``condition`` holds, else of ``otherwise``; computed only when some row needs it.

    Resets and values of final observations are rare. Computing them at every step is what makes others slow.
    """
    return jax.lax.cond(anywhere(condition, seeds_axis), lambda: select(condition, compute(), otherwise), lambda: otherwise)


def as_template(tree: PyTree, template: PyTree) -> PyTree:
    """``tree`` in the types of ``template``: environments mix Python numbers and arrays, a scan's carry cannot."""
    return jax.tree.map(lambda x, like: jnp.asarray(x).astype(like.dtype).reshape(like.shape), tree, template)


def reset(env: JaxEnvironment, keys: Key[Array, " N"], params: PyTree) -> tuple[PyTree, PyTree]:
    """``N`` fresh episodes: (states, observations)."""
    states, observations = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    return jax.tree.map(jnp.asarray, (states, observations))


def step(
    env: JaxEnvironment, keys: Key[Array, " N"], states: PyTree, actions: Array, observations: PyTree, params: PyTree
) -> tuple:
    """``N`` steps: states, observations, float32 rewards, bool terminated and truncated, success where the env tells it."""
    new, seen, reward, terminated, truncated, info = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, states, actions, params)
    success = jnp.asarray(info.get("success", jnp.zeros_like(terminated))).astype(bool)
    truncated = truncated.astype(bool) & ~terminated.astype(bool)
    return (
        as_template(new, states),
        as_template(seen, observations),
        reward.astype(jnp.float32),
        terminated.astype(bool),
        truncated,
        success,
    )


def tells_success(env: JaxEnvironment) -> bool:
    """Whether the environment says in ``info["success"]`` if an episode was one."""
    state, _ = jax.eval_shape(env.reset, jax.random.key(0), env.default_params)
    result = jax.eval_shape(env.step, jax.random.key(0), state, _example_action(env), env.default_params)
    return "success" in result[-1]


def _example_action(env: JaxEnvironment) -> Array:
    space = from_any(env.action_space, "action")
    return jnp.zeros(space.shape, jnp.float32 if isinstance(space, Box) else jnp.int32)


def check_env(env: JaxEnvironment | HostEnvironment, env_id: str) -> JaxEnvironment:
    """``env``, of which reset and step were traced without running them, and shapes held against the spaces. Raises ``EnvError``."""
    if isinstance(env, str):
        raise EnvError(f"env = {env!r} is a name: expected the environment itself, as proximo.make_env({env!r}).")
    if isinstance(env, HostEnvironment):
        raise EnvError(
            f"{env_id} is stepped on the host, and this is for environments in JAX (`proximo envs` lists them): proximo.PPO and proximo.train take "
            "either kind."
        )
    params = env.default_params
    space = from_any(env.observation_space, "observation")
    with users_code(f"{env_id}.reset"):
        pair = jax.eval_shape(env.reset, jax.random.key(0), params)
    if not isinstance(pair, tuple) or len(pair) != 2:
        got = f"{len(pair)} values" if isinstance(pair, tuple) else "one value"
        raise EnvError(f"{env_id}.reset returns {got}: expected a pair (state, observation).")
    state, observation = pair
    _hold_observation(observation, space, env_id, "reset", None)
    with users_code(f"{env_id}.step"):
        result = jax.eval_shape(env.step, jax.random.key(0), state, _example_action(env), params)
    if not isinstance(result, tuple) or len(result) != 6:
        raise EnvError(
            f"{env_id}.step returns {len(result) if isinstance(result, tuple) else 'one'} values: expected (state, observation, reward, terminated, truncated, info)."
        )
    new, seen, reward, terminated, truncated, info = result
    _hold_observation(seen, space, env_id, "step", observation)
    if not isinstance(info, Mapping) or np.shape(info.get("success", False)) != ():
        raise EnvError(f"{env_id}.step returns {info!r} as info: expected a dict, in it a single number where it has success.")
    for name, value in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
        if not hasattr(value, "dtype") or np.shape(value) != ():
            got = f"shape {np.shape(value)}" if hasattr(value, "dtype") else f"type {type(value).__name__}"
            raise EnvError(f"{env_id}.step returns {name} of {got}: expected a single number.")
        if not (np.can_cast(value.dtype, np.float64) if name == "reward" else np.issubdtype(value.dtype, np.bool_)):
            raise EnvError(
                f"{env_id}.step returns {name} of {value.dtype}: expected {'float32' if name == 'reward' else 'bool'}."
            )
    if jax.tree.structure(new) != jax.tree.structure(state):
        raise EnvError(f"{env_id}.step returns a state of another structure than reset's: expected {jax.tree.structure(state)}.")
    for (where, before), after in zip(jax.tree.leaves_with_path(state), jax.tree.leaves(new), strict=True):
        if np.shape(after) != np.shape(before) or not np.can_cast(after.dtype, before.dtype, "same_kind"):
            raise EnvError(
                f"{env_id}.step returns a state whose leaf {jax.tree_util.keystr(where) or 'itself'} is {after.dtype}{list(after.shape)}, "
                f"where reset's is {before.dtype}{list(before.shape)}: make both alike."
            )
    return env


def _hold_observation(observation: PyTree, space: Space, env_id: str, where: str, of_reset: PyTree) -> None:
    """Raise ``EnvError`` unless ``observation`` has the parts, shapes and types of its space, and the types of reset's."""
    returns = f"{env_id}.{where} returns an observation"
    # The descriptions of the parts are leaves of a pytree themselves.
    parts, structure = jax.tree.flatten(tree(lambda part: part, space))
    leaves = jax.tree.leaves(observation)
    if jax.tree.structure(observation) != structure or any(
        getattr(x, "shape", None) != part.shape for x, part in zip(leaves, parts, strict=True)
    ):
        got = jax.tree.map(lambda x: getattr(x, "shape", type(x).__name__), observation)
        raise EnvError(f"{returns} of shape {got}: its observation space is {space}.")
    paths = [path for path, _ in jax.tree.leaves_with_path(observation)]
    before = leaves if of_reset is None else jax.tree.leaves(of_reset)
    for path, leaf, part, earlier in zip(paths, leaves, parts, before, strict=True):
        place = f" whose {jax.tree_util.keystr(path)} is" if path else ""
        if not any(np.issubdtype(leaf.dtype, kind) for kind in _kinds(part)):
            raise EnvError(f"{returns}{place} of {leaf.dtype}: its observation space is {space}.")
        # A step's observation is cast to the type of reset's: floats into integers would lose what stands behind the point.
        if not np.can_cast(leaf.dtype, earlier.dtype, "same_kind"):
            raise EnvError(f"{returns}{place} of {leaf.dtype}, where reset's is {earlier.dtype}: make both alike.")


def _kinds(space: LeafSpace) -> tuple[type[np.generic], ...]:
    """The types of numbers that observations of ``space`` may have."""
    if isinstance(space, Box):
        return (np.uint8,) if space.dtype == "uint8" else (np.generic,)
    return (np.integer, np.bool_) if isinstance(space, MultiBinary) else (np.integer,)
