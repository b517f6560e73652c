"""The quick part of the checks, before a training: a reset and some steps of one environment."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from proximo.checks.in_jax import TRACE_FIX, action_of
from proximo.checks.plain import protocol
from proximo.checks.play import Row, first_difference, play
from proximo.drivers import vector
from proximo.envs.host.environment import HostEnvironment
from proximo.envs.host.observations import hold_observation, leaves, unflatten
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvError, command
from proximo.spaces import from_any
from proximo.users_code import users_code

STEPS = 8
SECONDS = 0.1


def _more(env_id: str) -> str:
    return f"`{command('proximo', 'check', env_id)}` reports the details."


def quick_check(env: JaxEnvironment | HostEnvironment, env_id: str) -> list[str]:
    """Raise ``EnvError`` with one sentence where ``env`` cannot be trained; return what a user should know, as sentences.

    One environment is made and takes some steps; for one in JAX, these are compiled. Environments that only come vectorised
    are not made for it: a pool holds their first thousand steps itself, and making EnvPool or ALE takes long.
    """
    if not isinstance(env, HostEnvironment):
        return _in_jax(env, env_id)
    return [] if env.make is None else _plain(env, env_id)


def _plain(env: HostEnvironment, env_id: str) -> list[str]:
    assert env.make is not None
    with users_code(f"Making {env_id}"):
        one = env.make()
    try:
        first = _short(one, env)
        wrong = next((f.says for f in protocol(first, leaves(env.observation_space), env_id) if f.level == "error"), None)
        if wrong:
            raise EnvError(f"{wrong} {_more(env_id)}")
        repeats = first_difference(first, _short(one, env), leaves(env.observation_space)) is None
    finally:
        with contextlib.suppress(Exception):
            one.close()
    if repeats:
        return []
    return [f"{env_id} gives different steps for the same seed and actions, so no run on it can be repeated: {_more(env_id)}"]


def _short(one: Any, env: HostEnvironment) -> list[Row]:
    return play(one, env.id, env.action_space, STEPS, seconds=SECONDS)


def _in_jax(env: JaxEnvironment, env_id: str) -> list[str]:
    try:
        vector.check_env(env, env_id)
    except EnvError as fault:
        traced = isinstance(fault.__cause__, jax.errors.JAXTypeError | jax.errors.UnexpectedTracerError)
        raise EnvError(f"{fault} {TRACE_FIX}" if traced else str(fault)) from fault
    params = jax.tree.map(jnp.asarray, env.default_params)

    def run(key: Any) -> Any:
        def one(carry: Any, key: Any) -> Any:
            acting, stepping = jax.random.split(key)
            action = jax.vmap(functools.partial(action_of, env))(acting[None], carry[1])
            states, seen, reward, *_ = vector.step(env, stepping[None], carry[0], action, carry[1], params)
            return (states, seen), (seen, reward)

        start = vector.reset(env, key[None], params)
        return start[1], jax.lax.scan(one, start, jax.random.split(key, STEPS))[1]

    with users_code(env_id):
        first, (later, reward) = jax.device_get(jax.jit(run)(jax.random.key(0)))
    space = from_any(env.observation_space, "observation")
    expected = leaves(space)
    parts = [np.concatenate([a, b[:, 0]]) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(later), strict=True)]
    for number, one in enumerate(zip(*parts, strict=True)):
        hold_observation(unflatten(space, one), expected, f"{env_id} in row {number} of a random play")
    if not np.isfinite(reward).all():
        raise EnvError(f"{env_id}.step gave the reward {reward[~np.isfinite(reward)][0]}: expected a finite number.")
    return []
