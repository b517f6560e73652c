"""Checks of an environment in JAX: what it must satisfy under ``jit`` and ``vmap``, and what it gives."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.checks import rows
from proximo.checks.finding import Finding, error, judged, ok, warning
from proximo.checks.play import Episode
from proximo.drivers import vector
from proximo.envs.host.observations import hold_observation, leaves, unflatten
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvError
from proximo.spaces import ACTION_MASK, Box, Discrete, MultiBinary, Space, from_any
from proximo.users_code import users_code

EAGER_STEPS = 3
NUM_ENVS = 8
STEPS = 300
MOST_CALLS = 20
END_SECONDS = 3.0
SPEED_ENVS = 256
SPEED_STEPS = 3000
SPEED_SECONDS = 3.0
SHORT_SECONDS = 0.1
TOLERANCE = 1e-4
Episodic = Callable[[Any, Any], list[Any]]
Said = Callable[[str], None]
"""Told of a check that begins."""
TRACE_FIX = (
    "Under jit no Python may branch on an array: use jnp.where, jax.lax.cond or jax.lax.select, and keep all state in what reset "
    "and step return."
)


def look(env: JaxEnvironment, env_id: str, limit: int = 0, said: Said = lambda check: None) -> list[Finding]:
    """All checks of an environment in JAX. Where it cannot be traced, there is nothing else to look at. ``limit``
    is the ``max_episode_steps`` of a training, 0 for none; ``said`` is told which check begins."""
    said("tracing")
    traced = judged("tracing", lambda: _traced(env, env_id))
    if traced.level == "error":
        return [_with_fix(traced)]
    said("side effects")
    found = [traced, judged("side effects", lambda: side_effects(env, env_id))]
    if found[-1].level == "error":
        return found  # what is frozen in a trace makes the rest meaningless
    compiled = jax.jit(functools.partial(_episode, env))
    for name, check in (("jit", same_under_jit), ("vmap", same_under_vmap), ("keys", keys_differ)):
        said(name)
        found.append(judged(name, functools.partial(check, env, env_id, compiled)))
    return found if any(f.level == "error" for f in found) else [*found, *_played(env, env_id, limit, said)]


def _with_fix(traced: Finding) -> Finding:
    """What JAX says of a traced value in a Python branch is told with its remedy."""
    names = ("TracerBool", "ConcretizationType", "TracerArray", "TracerInteger", "UnexpectedTracer", "NonConcreteBoolean")
    return error(traced.check, f"{traced.says} {TRACE_FIX}") if any(name in traced.says for name in names) else traced


def _traced(env: JaxEnvironment, env_id: str) -> str:
    vector.check_env(env, env_id)
    return "reset and step can be traced, and keep shapes and types."


def action_of(env: JaxEnvironment, key: Key[Array, ""], observation: PyTree) -> Array:
    """A random action that the mask in ``observation``, where there is one, allows; unbounded components from a standard normal
    distribution."""
    space = from_any(env.action_space, "action")
    mask = observation.get(ACTION_MASK) if isinstance(observation, Mapping) else None
    if isinstance(space, Box):
        low, high = (jnp.asarray(bound, jnp.float32) for bound in space.bounds())
        bounded = jnp.isfinite(low) & jnp.isfinite(high)
        even = jax.random.uniform(key, space.shape, jnp.float32, jnp.where(bounded, low, 0.0), jnp.where(bounded, high, 1.0))
        return jnp.where(bounded, even, jnp.clip(jax.random.normal(key, space.shape), low, high))
    if isinstance(space, MultiBinary):
        return jax.random.bernoulli(key, shape=space.shape).astype(jnp.int32)
    sizes = [space.n] if isinstance(space, Discrete) else list(space.nvec)
    allowed = jnp.ones(sum(sizes), bool) if mask is None or mask.size != sum(sizes) else mask.reshape(-1) != 0
    parts = jnp.split(jnp.where(allowed, 0.0, -jnp.inf), np.cumsum(sizes)[:-1])
    keys = jax.random.split(key, len(sizes))
    chosen = jnp.stack([jax.random.categorical(k, part) for k, part in zip(keys, parts, strict=True)])
    return (chosen + jnp.asarray(space.start)).reshape(space.shape).astype(jnp.int32)


def _episode(env: JaxEnvironment, key: Key[Array, ""], actions: Key[Array, ""]) -> list[PyTree]:
    """A reset and ``EAGER_STEPS`` steps: what came of each of them; the actions from a key of their own."""
    key, first = jax.random.split(key)
    state, observation = env.reset(first, env.default_params)
    came: list[PyTree] = [(state, observation)]
    for t in range(EAGER_STEPS):
        action = action_of(env, jax.random.fold_in(actions, t), observation)
        state, observation, reward, terminated, truncated, _ = env.step(
            jax.random.fold_in(key, t), state, action, env.default_params
        )
        came.append((state, observation, reward, terminated, truncated))
    return came


def _differ(one: PyTree, other: PyTree) -> bool:
    """Whether two results differ by more than another order of the same sums."""

    def close(a: Any, b: Any) -> bool:
        a, b = (np.asarray(jax.random.key_data(x) if _is_key(x) else x) for x in (a, b))
        if a.dtype.kind in "fc":
            return a.shape == b.shape and np.allclose(a, b, TOLERANCE, TOLERANCE, equal_nan=True)
        return np.array_equal(a, b)

    return not all(map(close, jax.tree.leaves(one), jax.tree.leaves(other)))


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def side_effects(env: JaxEnvironment, env_id: str) -> Finding | str:
    """Whether reset and step are functions of their arguments alone: nothing is kept in ``self``, a key repeats its result."""
    key = jax.random.key(0)
    before = _attributes(env)
    with users_code(env_id):
        one = _episode(env, key, key)
        changed = sorted(name for name, value in _attributes(env).items() if before.get(name) != value)
        other = _episode(env, key, key)
    if changed:
        return error(
            "side effects",
            f"{env_id} changes self.{changed[0]} in reset or step: under jit that happens once, while it is traced, and never again. "
            "Keep it in the state that reset and step return.",
        )
    if _differ(one, other):
        return error(
            "side effects",
            f"The same key gives another result the second time: something in {env_id} is drawn or counted outside of its arguments "
            "(numpy's or Python's generator, a global), which jit would freeze. Draw from the key with jax.random.",
        )
    return "reset and step follow from their arguments alone: the same key gives the same result."


def _attributes(env: Any) -> dict[str, Any]:
    """What the environment holds, as what can be compared: objects by identity, containers by their contents too."""

    def mark(value: Any) -> Any:
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | set) else ()
        return id(value), [id(part) for part in inside]

    return {name: mark(value) for name, value in getattr(env, "__dict__", {}).items()}


def same_under_jit(env: JaxEnvironment, env_id: str, compiled: Episodic) -> Finding | str:
    """Whether compiled steps give what steps in Python give."""
    key = jax.random.key(1)
    with users_code(env_id):
        differ = _differ(_episode(env, key, key), compiled(key, key))
    if differ:
        return error(
            "jit",
            f"{env_id} gives other results under jit than without: something is read when it is traced and not when it runs. Let "
            "everything follow from the arguments, and use jax.numpy for what does.",
        )
    return f"A reset and {EAGER_STEPS} steps give the same with and without jit."


def same_under_vmap(env: JaxEnvironment, env_id: str, compiled: Episodic) -> Finding | str:
    """Whether vectorised steps give what single ones give."""
    keys = jax.random.split(jax.random.key(2), 3)
    with users_code(env_id):
        together = jax.jit(jax.vmap(functools.partial(_episode, env)))(keys, keys)
        apart = [compiled(k, k) for k in keys]
    if any(_differ(jax.tree.map(lambda x, i=i: x[i], together), one) for i, one in enumerate(apart)):
        return error(
            "vmap",
            f"{env_id} gives other results under vmap than one by one: look for a callback, or for a random number that is not "
            "drawn from the key.",
        )
    return "Several under vmap give the same as one by one."


def keys_differ(env: JaxEnvironment, env_id: str, compiled: Episodic) -> Finding:
    """Whether another key gives another episode, with the same actions."""
    with users_code(env_id):
        seen = [[part[1:] for part in compiled(jax.random.key(seed), jax.random.key(0))] for seed in range(6)]
    if not any(_differ(seen[0], other) for other in seen[1:]):
        return warning(
            "keys",
            f"Six keys give the same first {EAGER_STEPS} steps: either nothing is random there, which is fine if it is meant (all "
            "environments then start alike), or reset and step ignore their key. Draw from it with jax.random.",
        )
    return ok("keys", "Other keys give other episodes.")


def _playing(env: JaxEnvironment, num_envs: int) -> Callable[[PyTree, Key[Array, ""]], tuple[PyTree, PyTree]]:
    """``(carry, key) -> (carry, row)``, a random step of each with resets; to be compiled."""
    params = jax.tree.map(jnp.asarray, env.default_params)

    def one(carry: PyTree, key: Key[Array, ""]) -> tuple[PyTree, PyTree]:
        states, observations = carry
        acting, stepping, resetting = jax.random.split(key, 3)
        actions = jax.vmap(functools.partial(action_of, env))(jax.random.split(acting, num_envs), observations)
        keys = jax.random.split(stepping, num_envs)
        states, seen, reward, terminated, truncated, _ = vector.step(env, keys, states, actions, observations, params)
        done = terminated | truncated
        fresh = vector.where_any(
            done,
            lambda: vector.as_template(vector.reset(env, jax.random.split(resetting, num_envs), params), (states, seen)),
            (states, seen),
            False,
        )
        return fresh, (seen, reward, terminated, truncated)

    return one


def _played(env: JaxEnvironment, env_id: str, limit: int, said: Said) -> list[Finding]:
    """What some hundred random steps gave: numbers, ranges, ends; and how fast they were."""
    said("play")
    one, params = _playing(env, NUM_ENVS), jax.tree.map(jnp.asarray, env.default_params)
    key_reset, key_run = jax.random.split(jax.random.key(0))
    carry = jax.jit(lambda key: vector.reset(env, jax.random.split(key, NUM_ENVS), params))(key_reset)
    run = jax.jit(lambda carry, key: jax.lax.scan(one, carry, jax.random.split(key, STEPS)))
    started, steps = time.perf_counter(), 0
    flags: list[Any] = []
    with users_code(env_id):
        opening, (carry, rows_seen) = carry[1], jax.device_get(run(carry, jax.random.fold_in(key_run, 0)))
        seen, reward, *ends = rows_seen
        while True:
            flags.append(ends)
            steps += STEPS
            ended = _episodes(*(np.concatenate(part) for part in zip(*flags, strict=True)))
            late = time.perf_counter() - started > END_SECONDS
            if ended or limit or late or len(flags) == MOST_CALLS:
                break
            carry, (_, _, *ends) = jax.device_get(run(carry, jax.random.fold_in(key_run, len(flags))))
    space = from_any(env.observation_space, "observation")
    both = zip(jax.tree.leaves(opening), jax.tree.leaves(seen), strict=True)
    flat = [np.concatenate([first, later.reshape(-1, *later.shape[2:])]) for first, later in both]
    numbers = judged("numbers", lambda: _numbers(flat, reward, space, env_id))
    if numbers.level == "error":
        return [numbers]
    return [
        numbers,
        rows.ranges(leaves(space), flat),
        *rows.masks(leaves(space), flat, from_any(env.action_space, "action"), rows.acted_on(flags[0][0] | flags[0][1])),
        rows.ends(ended, steps * NUM_ENVS, limit, by_seconds=late),
        rows.time_limits(ended),
        judged("speed", lambda: _speed(env, env_id, carry, said)),
    ]


def _episodes(terminated: np.ndarray, truncated: np.ndarray) -> list[Episode]:
    ended = []
    for column in range(terminated.shape[1]):
        before = -1
        for t in np.flatnonzero(terminated[:, column] | truncated[:, column]):
            ended.append(Episode(int(t) - before, bool(terminated[t, column]), bool(truncated[t, column])))
            before = int(t)
    return ended


def _numbers(observations: list[np.ndarray], reward: np.ndarray, space: Space, env_id: str) -> str:
    """Raise ``EnvError`` where a number is not finite, or no member of a discrete space."""
    bad = np.argwhere(~np.isfinite(reward))
    if len(bad):
        raise EnvError(
            f"{env_id}.step gave the reward {reward[tuple(bad[0])]} in random step {bad[0][0]}: expected a finite number. Look for a "
            "division by nought, a logarithm or root of what is not positive, or a state that grows without bound."
        )
    expected = leaves(space)
    for number, one in enumerate(zip(*observations, strict=True)):
        hold_observation(unflatten(space, one), expected, f"{env_id} in row {number} of a random play")
    return f"{len(observations[0]):,} observations and rewards are finite (rewards {reward.min():.4g} … {reward.max():.4g})."


def _speed(env: JaxEnvironment, env_id: str, carry: PyTree, said: Said) -> str:
    """By copies of the environments of ``carry``, so that no reset of so many is compiled by itself."""
    said("speed")
    carry = jax.tree.map(lambda x: jnp.asarray(x)[jnp.arange(SPEED_ENVS) % NUM_ENVS], carry)
    with users_code(env_id):
        one = _playing(env, SPEED_ENVS)

        @jax.jit
        def run(carry: PyTree, key: Key[Array, ""], steps: Array) -> PyTree:
            return jax.lax.fori_loop(0, steps, lambda t, carry: one(carry, jax.random.fold_in(key, t))[0], carry)

        def timed(steps: int, call: int) -> float:
            nonlocal carry
            started = time.perf_counter()
            carry = jax.block_until_ready(run(carry, jax.random.key(call), jnp.int32(steps)))
            return time.perf_counter() - started

        timed(1, 0)  # compiles
        speed = SPEED_ENVS * paced(lambda steps: timed(steps, steps))
    return f"{speed:,.0f} steps/s of {SPEED_ENVS} under vmap on {jax.devices()[0].platform}, by random actions, resets included."


def paced(timed: Callable[[int], float]) -> float:
    """Steps in a second, where ``timed(steps)`` takes so many and gives the seconds: over ``SPEED_STEPS``, or as many as ``SPEED_SECONDS`` suffice for.

    Calls grow while they are short only: where worlds are made anew, steps that a reset falls on take a hundred times as long as those
    before (Craftax Classic: 300 steps of 256 environments were not over after five minutes).
    """
    steps, done, seconds = 1, 0, 0.0
    while done < SPEED_STEPS and seconds < SPEED_SECONDS:
        took = timed(steps)
        done, seconds = done + steps, seconds + took
        if took < SHORT_SECONDS:
            steps = min(2 * steps, STEPS)
    return done / seconds
