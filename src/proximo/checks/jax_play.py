"""Plays random actions in a JAX environment, and checks numbers, ranges, ends of episodes and speed."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
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
from proximo.config import Config
from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.observations import leaves, unflatten
from proximo.envs.gymnasium.transition_checks import check_observation
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvError
from proximo.spaces import Space, from_any

NUM_ENVS = 8
STEPS = 300
MAX_CALLS = 20
END_SECONDS = 3.0
MASK_FIX = "return the mask as an entry action_mask of a Dict observation."


def check_play(env: JaxEnvironment, config: Config, on_check: Callable[[str], None]) -> Iterator[Finding]:
    """Check the numbers, ranges, scale, masks and episode ends of random steps, and measure their speed."""
    on_check("play")
    env_id, limit = config.env.id, config.env.max_episode_steps
    one, params = _playing(env, NUM_ENVS), jax.tree.map(jnp.asarray, env.default_params)
    key_reset, key_run = jax.random.split(jax.random.key(0))
    carry = jax.jit(lambda key: jax_vector.reset(env, jax.random.split(key, NUM_ENVS), params))(key_reset)
    run = jax.jit(lambda carry, key: jax.lax.scan(one, carry, jax.random.split(key, STEPS)))
    started, steps = time.perf_counter(), 0
    flags: list[Any] = []
    with custom_code_errors(env_id):
        reset_observation, (carry, transitions) = carry[1], jax.device_get(run(carry, jax.random.fold_in(key_run, 0)))
        seen, reward, *ends = last = transitions
        while True:
            flags.append(ends)
            steps += STEPS
            ended = episodes_in(*(np.concatenate(part) for part in zip(*flags, strict=True)))
            out_of_time = time.perf_counter() - started > END_SECONDS
            if ended or limit or out_of_time or len(flags) == MAX_CALLS:
                break
            carry, last = jax.device_get(run(carry, jax.random.fold_in(key_run, len(flags))))
            ends = last[2:]
    space = from_any(env.observation_space, "observation")
    flat = flat_observations(reset_observation, seen)
    numbers = run_check("numbers", lambda: check_numbers(flat, reward, space, env_id))
    yield numbers
    if numbers.level == "error":
        return
    yield from (
        check_ranges(leaves(space), flat),
        *check_scale(space, Seen(flat, reward), config),
        *check_action_mask(leaves(space), flat, from_any(env.action_space, "action"), is_acted_on(flags[0][0] | flags[0][1])),
        *check_unused_mask([env], jax_vector.info_shapes(env), leaves(space), from_any(env.action_space, "action"), MASK_FIX),
        check_ends(ended, steps * NUM_ENVS, limit, out_of_time=out_of_time),
        check_time_limit(ended, [x.reshape(-1, *x.shape[2:]) for x in jax.tree.leaves(last[:2])], last[2].reshape(-1)),
    )
    on_check("speed")
    started = time.perf_counter()
    jax.block_until_ready(run(carry, key_run))
    speed = f"{STEPS * NUM_ENVS / (time.perf_counter() - started):,.0f} steps/s with {NUM_ENVS} environments on {jax.devices()[0].platform}"
    yield ok("speed", f"{speed} and random actions, resets included.")


def _playing(env: JaxEnvironment, num_envs: int) -> Callable[[PyTree, Key[Array, ""]], tuple[PyTree, PyTree]]:
    """A function ``(carry, key) -> (carry, transition)`` that takes a random step in each environment and resets those that end."""
    params = jax.tree.map(jnp.asarray, env.default_params)

    def one(carry: PyTree, key: Key[Array, ""]) -> tuple[PyTree, PyTree]:
        states, observations = carry
        acting, stepping, resetting = jax.random.split(key, 3)
        actions = jax.vmap(functools.partial(action_of, env))(jax.random.split(acting, num_envs), observations)
        keys = jax.random.split(stepping, num_envs)
        states, seen, reward, terminated, truncated, _ = jax_vector.step(env, keys, states, actions, observations, params)
        done = terminated | truncated
        fresh = jax_vector.where_any(
            done,
            lambda: jax_vector.as_template(jax_vector.reset(env, jax.random.split(resetting, num_envs), params), (states, seen)),
            (states, seen),
            False,
        )
        return fresh, (seen, reward, terminated, truncated)

    return one


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
