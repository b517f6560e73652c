"""Plays random actions in a JAX environment, and checks numbers, ranges, ends of episodes and speed."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.checks.action_mask import check_action_mask, check_unused_mask, is_acted_on
from proximo.checks.episode_ends import check_ends, check_time_limit
from proximo.checks.finding import Finding, ok, run_check
from proximo.checks.random_action import action_of
from proximo.checks.random_play import episodes_in
from proximo.checks.ranges import check_ranges
from proximo.checks.scale import Seen, check_scale
from proximo.collect import jax_vector
from proximo.collect.compiled_function import CompiledFunction
from proximo.config import Config
from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.observations import leaves, unflatten
from proximo.envs.gymnasium.transition_checks import check_observation
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvError
from proximo.networks.recurrent import select
from proximo.spaces import Space, from_any

NUM_ENVS = 8
STEPS = 300
MAX_CALLS = 20
END_SECONDS = 3.0
MASK_FIX = "return the mask as an entry action_mask of a Dict observation."


def check_play(env: JaxEnvironment, config: Config) -> Iterator[Finding]:
    """Check the numbers, ranges, scale, masks and episode ends of random steps, and measure their speed."""
    env_id, limit = config.env.id, config.env.max_episode_steps
    flags: list[Any] = []
    play, started = jax_plays(env, NUM_ENVS, STEPS), time.perf_counter()
    with custom_code_errors(env_id):
        first, (seen, reward, *ends) = next(play), (last := next(play))
        while True:
            flags.append(last[2:])
            ended = episodes_in(*(np.concatenate(part) for part in zip(*flags, strict=True)))
            out_of_time = time.perf_counter() - started > END_SECONDS
            if ended or limit or out_of_time or len(flags) == MAX_CALLS:
                break
            last = next(play)
    space = from_any(env.observation_space, "observation")
    flat = flat_observations(first, seen)
    numbers = run_check("numbers", lambda: check_numbers(flat, reward, space, env_id))
    yield numbers
    if numbers.level == "error":
        return
    yield from (
        check_ranges(leaves(space), flat),
        *check_scale(space, Seen(flat, reward), config),
        *check_action_mask(leaves(space), flat, from_any(env.action_space, "action"), is_acted_on(ends[0] | ends[1])),
        *check_unused_mask([env], jax_vector.info_shapes(env), leaves(space), from_any(env.action_space, "action"), MASK_FIX),
        check_ends(ended, len(flags) * STEPS * NUM_ENVS, limit, out_of_time=out_of_time),
        check_time_limit(ended, [x.reshape(-1, *x.shape[2:]) for x in jax.tree.leaves(last[:2])], last[2].reshape(-1)),
    )
    started = time.perf_counter()
    next(play)
    speed = f"{STEPS * NUM_ENVS / (time.perf_counter() - started):,.0f} steps/s with {NUM_ENVS} environments on {jax.devices()[0].platform}"
    yield ok("speed", f"{speed} and random actions, resets included.")


def jax_plays(env: JaxEnvironment, num_envs: int, num_steps: int, brief: bool = False) -> Iterator[Any]:
    """Play random steps without an end. Return the observations of a reset, ``[N, ...]``, and then for each ``num_steps`` steps the
    observations, rewards and flags, ``[T, N, ...]``."""
    params = jax.tree.map(jnp.asarray, env.default_params)

    def reset(key: Key[Array, ""]) -> PyTree:
        start = jax_vector.reset(env, jax.random.split(key, num_envs), params)
        return jax_vector.as_template(start, start)  # the types of later steps: otherwise ``steps`` would compile twice

    def steps(start: PyTree, carry: PyTree, key: Key[Array, ""]) -> PyTree:
        def one(carry: PyTree, key: Key[Array, ""]) -> PyTree:
            acting, stepping = jax.random.split(key)
            actions = jax.vmap(functools.partial(action_of, env))(jax.random.split(acting, num_envs), carry[1])
            keys = jax.random.split(stepping, num_envs)
            states, *seen, _ = jax_vector.step(env, keys, carry[0], actions, carry[1], params)
            # Every episode starts from the same state, because compiling another reset takes long.
            return select(seen[2] | seen[3], start, (states, seen[0])), tuple(seen)

        return jax.lax.scan(one, carry, jax.random.split(key, num_steps))

    first, later_steps = CompiledFunction(reset, brief=brief), CompiledFunction(steps, brief=brief)
    carry = start = first(0, jax.random.key(0))
    yield jax.device_get(start[1])
    for call in itertools.count():
        carry, seen = later_steps(0, start, carry, jax.random.key(call))
        yield jax.device_get(seen)


def flat_observations(first: PyTree, later: PyTree) -> list[np.ndarray]:
    """The leaves of the observations of a reset, ``[N, ...]``, and of steps, ``[T, N, ...]``, as ``[(T + 1) * N, ...]``."""
    both = zip(jax.tree.leaves(first), jax.tree.leaves(later), strict=True)
    return [np.concatenate([a, b.reshape(-1, *b.shape[2:])]) for a, b in both]


def check_numbers(observations: list[np.ndarray], reward: np.ndarray, space: Space, env_id: str) -> str:
    """Raise ``EnvError`` if a number is not finite, or an observation is not a member of its space."""
    bad = np.argwhere(~np.isfinite(reward))
    if len(bad):
        raise EnvError(
            f"{env_id}.step gave the reward {reward[tuple(bad[0])]} in random step {bad[0][0]}: expected a finite number. Look for a "
            "division by zero, a logarithm or root of a negative number, or a state that grows without bound."
        )
    expected = leaves(space)
    for number, one in enumerate(zip(*observations, strict=True)):
        check_observation(unflatten(space, one), expected, f"{env_id} in transition {number} of a random play")
    return f"{len(observations[0]):,} observations and rewards are finite (rewards {reward.min():.4g} … {reward.max():.4g})."
