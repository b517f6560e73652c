"""One JAX environment as ``N`` environments: vectorized reset and step, and the check of its protocol."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key, PyTree

from proximo.custom_code import custom_code_errors
from proximo.envs.custom import as_jax_environment
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.protocol import Environment, JaxEnvironment
from proximo.errors import ConfigError, EnvError
from proximo.math.selection import select
from proximo.spaces import Box, LeafSpace, MultiBinary, Space, tree

SEEDS_AXIS = "seeds"
MANY_ENVS = 1024
"""With this many environments, an episode ends in nearly every step."""


def vmaps_seeds() -> bool:
    """Whether the seeds of one program train side by side. On a CPU, a core trains one after the other
    (docs/decisions/0019-start-and-cores.md)."""
    return jax.default_backend() != "cpu"


def over_seeds(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``function`` of trees of one seed, for trees whose arrays have a leading axis of seeds."""
    if vmaps_seeds():
        return jax.vmap(function, axis_name=SEEDS_AXIS)
    return lambda *trees: jax.lax.map(lambda seed: function(*seed), trees)


def anywhere(condition: Bool[Array, "*rows"], seeds_axis: bool) -> Bool[Array, ""]:
    """Whether the condition holds in any environment; with ``seeds_axis``, of any seed.

    With one answer for all seeds ``lax.cond`` stays a branch under vmap.
    """
    answer = jnp.any(condition)
    if not seeds_axis:
        return answer
    try:
        return jax.lax.pmax(answer.astype(jnp.int32), SEEDS_AXIS).astype(bool)
    except NameError as error:
        raise ConfigError(
            f"seeds_axis = True, but there is no such axis: call the function under jax.vmap(…, axis_name={SEEDS_AXIS!r})."
        ) from error


def where_any(
    condition: Bool[Array, " N"], compute: Callable[[], PyTree], otherwise: PyTree, seeds_axis: bool, cheap: bool = True
) -> PyTree:
    """``compute()`` where ``condition`` holds, else ``otherwise``. It is computed only if some environment needs it.

    Resets and values of final observations are rare. With ``MANY_ENVS`` environments they are not, and the branch itself takes
    time on an accelerator (benchmarks/RESULTS.md): there, all that is ``cheap`` is computed in every step.
    """
    if cheap and jax.default_backend() != "cpu" and condition.shape[0] >= MANY_ENVS:
        return select(condition, compute(), otherwise)
    return jax.lax.cond(anywhere(condition, seeds_axis), lambda: select(condition, compute(), otherwise), lambda: otherwise)


def as_template(tree: PyTree, template: PyTree) -> PyTree:
    """``tree`` with the types of ``template``: environments may mix Python numbers and arrays, a scan may not."""

    def cast(x: Any, like: Any) -> Any:
        return x if _is_key(like.dtype) else jnp.asarray(x).astype(like.dtype).reshape(like.shape)

    return jax.tree.map(cast, tree, template)


def _is_key(dtype: Any) -> bool:
    """Whether ``dtype`` is the type of random keys (``jax.random.key``), which NumPy does not support."""
    return jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _fits_type(dtype: Any, other: Any) -> bool:
    """Whether a leaf may be stored as ``other``: numbers of the same kind, or keys of the same implementation."""
    return dtype == other if _is_key(dtype) or _is_key(other) else np.can_cast(dtype, other, "same_kind")


def reset(env: JaxEnvironment, keys: Key[Array, " N"], params: PyTree) -> tuple[PyTree, PyTree]:
    """Begin ``N`` episodes. Returns states and observations."""
    states, observations = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    return jax.tree.map(jnp.asarray, (states, observations))


def step(
    env: JaxEnvironment, keys: Key[Array, " N"], states: PyTree, actions: Array, observations: PyTree, params: PyTree
) -> tuple:
    """Step ``N`` environments. Returns states, observations, rewards, terminated, truncated and success (None: unreported)."""
    stepped = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, states, actions, params)
    new, seen, reward, terminated, truncated, info = stepped
    success = info.get("success")
    if success is not None:
        success = success.astype(bool) & ~jnp.isnan(success)
    terminated = terminated.astype(bool)
    truncated, reward = truncated.astype(bool) & ~terminated, reward.astype(jnp.float32)
    return as_template(new, states), as_template(seen, observations), reward, terminated, truncated, success


def reports_success(env: JaxEnvironment) -> bool:
    """Whether the environment reports ``info["success"]``."""
    return info_shapes(env).get("success") is not None


def info_shapes(env: JaxEnvironment) -> dict[str, Any]:
    """Shapes and types of the ``info`` of a step."""
    key = jax.eval_shape(jax.random.key, 0)
    state, _ = jax.eval_shape(env.reset, key, env.default_params)
    return jax.eval_shape(env.step, key, state, _example_action(env), env.default_params)[-1]


def _example_action(env: JaxEnvironment) -> jax.ShapeDtypeStruct:
    space = env.action_space
    return jax.ShapeDtypeStruct(space.shape, jnp.float32 if isinstance(space, Box) else jnp.int32)


def check_env(given: Environment, env_id: str) -> JaxEnvironment:
    """Check that ``given`` follows the protocol of JAX environments, and return it, with spaces of proximo.

    Reset and step are traced, and shapes and types are compared with the spaces. Raises ``EnvError`` if the protocol is broken, or
    ``given`` is a Gymnasium environment or a name.
    """
    if isinstance(given, str):
        raise EnvError(f"env = {given!r} is a name: expected the environment itself, as proximo.make_env({given!r}).")
    if isinstance(given, GymnasiumEnvironment):
        raise EnvError(
            f"{env_id} is a Gymnasium environment: expected a JAX environment (`proximo envs` lists them). "
            "proximo.PPO and proximo.train take either kind."
        )
    if inspect.isclass(given):
        raise EnvError(f"env = {given!r} is a class: expected an environment: call it, with its arguments.")
    env: JaxEnvironment = as_jax_environment(given, env_id)
    params = env.default_params
    space = env.observation_space
    key = jax.eval_shape(jax.random.key, 0)
    state, observation = _traced(f"{env_id}.reset", env.reset, ("state", "observation"), key, params)
    _check_observation(observation, space, env_id, "reset", None)
    names, step = ("state", "observation", "reward", "terminated", "truncated", "info"), f"{env_id}.step returns"
    result = _traced(f"{env_id}.step", env.step, names, key, state, _example_action(env), params)
    new, seen, reward, terminated, truncated, info = result
    _check_observation(seen, space, env_id, "step", observation)
    if not isinstance(info, Mapping) or np.shape(info.get("success", False)) != ():
        raise EnvError(f"{step} {info!r} as info: expected a dict, whose entry success, if any, is a single number.")
    for name, value in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
        if not hasattr(value, "dtype") or np.shape(value) != ():
            got = f"shape {np.shape(value)}" if hasattr(value, "dtype") else f"type {type(value).__name__}"
            raise EnvError(f"{step} {name} of {got}: expected a single number.")
        is_right, type_ = np.issubdtype(value.dtype, np.bool_), "bool"
        if name == "reward":
            is_right, type_ = np.can_cast(value.dtype, np.float64), "float32"
        if not is_right:
            raise EnvError(f"{step} {name} of {value.dtype}: expected {type_}.")
    if jax.tree.structure(new) != jax.tree.structure(state):
        raise EnvError(f"{step} a state of another structure than reset: expected {jax.tree.structure(state)}.")
    for (where, before), after in zip(jax.tree.leaves_with_path(state), jax.tree.leaves(new), strict=True):
        if np.shape(after) != np.shape(before) or not _fits_type(after.dtype, before.dtype):
            raise EnvError(
                f"{step} a state whose leaf {jax.tree_util.keystr(where) or 'itself'} is {after.dtype}{list(after.shape)}, "
                f"where reset returns {before.dtype}{list(before.shape)}: use one type and shape."
            )
    return env


def _traced(what: str, function: Callable[..., Any], names: tuple[str, ...], *arguments: Any) -> tuple[Any, ...]:
    """Shapes and types of what ``function`` returns, which has to be a tuple of ``names``."""
    with custom_code_errors(what):
        result = jax.eval_shape(function, *arguments)
    if not isinstance(result, tuple) or len(result) != len(names):
        got = f"{len(result)} values" if isinstance(result, tuple) else "one value"
        raise EnvError(f"{what} returns {got}: expected ({', '.join(names)}).")
    return result


def _check_observation(observation: PyTree, space: Space, env_id: str, where: str, of_reset: PyTree) -> None:
    """Raise ``EnvError`` unless ``observation`` has the parts, shapes and types of its space, and those of reset."""
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
        # Observations of steps are cast to the type of reset: floats as integers would lose their fractions.
        if not np.can_cast(leaf.dtype, earlier.dtype, "same_kind"):
            raise EnvError(f"{returns}{place} of {leaf.dtype}, where reset returns {earlier.dtype}: use one type.")


def _kinds(space: LeafSpace) -> tuple[type[np.generic], ...]:
    """The types of numbers that observations of ``space`` may have."""
    if isinstance(space, Box):
        return (np.uint8,) if space.dtype == "uint8" else (np.generic,)
    return (np.integer, np.bool_) if isinstance(space, MultiBinary) else (np.integer,)
