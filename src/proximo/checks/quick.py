"""The quick check before a training: a reset and some steps of one environment."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import jax
import jax.numpy as jnp

from proximo.checks.gymnasium_environment import make_one
from proximo.checks.interface import check_interface
from proximo.checks.jax_play import check_numbers, flat_observations
from proximo.checks.jax_transforms import TRACE_FIX
from proximo.checks.random_action import action_of
from proximo.checks.random_play import Transition, first_difference, play
from proximo.collect import jax_vector
from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.observations import leaves
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvError, command
from proximo.spaces import from_any

STEPS = 8
SECONDS = 0.1


def _more(env_id: str) -> str:
    return f"`{command('proximo', 'check', env_id)}` reports the details."


def quick_check(env: JaxEnvironment | GymnasiumEnvironment, env_id: str) -> list[str]:
    """Check that ``env`` can be trained, with a few steps of one environment.

    Environments that exist only as vector environments are not checked here: making EnvPool or ALE takes long, and training checks
    their first thousand steps.

    Args:
        env: The environment.
        env_id: Its id, for messages.

    Returns:
        Warnings for the user, one sentence each.

    Raises:
        EnvError: The environment cannot be trained.
    """
    if isinstance(env, GymnasiumEnvironment):
        return _check_gymnasium(env, env_id)
    _check_jax(env, env_id)
    return []


def _check_gymnasium(env: GymnasiumEnvironment, env_id: str) -> list[str]:
    if env.make is None:
        return []
    one = make_one(env)
    try:
        first = _short(one, env)
        wrong = next(
            (f.message for f in check_interface(first, leaves(env.observation_space), env_id) if f.level == "error"), None
        )
        if wrong:
            raise EnvError(f"{wrong} {_more(env_id)}")
        repeats = first_difference(first, _short(one, env), leaves(env.observation_space)) is None
    finally:
        with contextlib.suppress(Exception):
            one.close()
    if repeats:
        return []
    return [f"{env_id} gives different steps for the same seed and actions, so no run on it can be repeated. {_more(env_id)}"]


def _short(one: Any, env: GymnasiumEnvironment) -> list[Transition]:
    return play(one, env.id, env.action_space, STEPS, seconds=SECONDS)


def _check_jax(env: JaxEnvironment, env_id: str) -> None:
    try:
        jax_vector.check_env(env, env_id)
    except EnvError as fault:
        traced = isinstance(fault.__cause__, jax.errors.JAXTypeError | jax.errors.UnexpectedTracerError)
        raise EnvError(f"{fault} {TRACE_FIX}" if traced else str(fault)) from fault
    params = jax.tree.map(jnp.asarray, env.default_params)

    def run(key: Any) -> Any:
        def one(carry: Any, key: Any) -> Any:
            acting, stepping = jax.random.split(key)
            action = jax.vmap(functools.partial(action_of, env))(acting[None], carry[1])
            states, seen, reward, *_ = jax_vector.step(env, stepping[None], carry[0], action, carry[1], params)
            return (states, seen), (seen, reward)

        start = jax_vector.reset(env, key[None], params)
        return start[1], jax.lax.scan(one, start, jax.random.split(key, STEPS))[1]

    with custom_code_errors(env_id):
        first, (later, reward) = jax.device_get(jax.jit(run)(jax.random.key(0)))
    check_numbers(flat_observations(first, later), reward, from_any(env.observation_space, "observation"), env_id)
