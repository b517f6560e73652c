"""The laws that networks of the user's are held against before anything is trained with them."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from proximo.errors import ConfigError
from proximo.networks.actor_critic import ActorCritic
from proximo.networks.own import OwnCell, described
from proximo.networks.own_head import OwnDistribution, OwnHead
from proximo.networks.torso import Torso
from proximo.spaces import ActionSpace, Box, Discrete, MultiBinary, Space, zeros
from proximo.users_code import users_code

STEPS, ENVS, DRAWS = 6, 3, 256
TOLERANCE = 1e-3
"""Of float32 along two ways of summing up: a reset that is missed, or a row that is read twice, is off by a hundred times as much."""
MOST_CHOICES = 4096


def hold_alike(one: ActorCritic, other: ActorCritic) -> None:
    """Raise ``ConfigError`` where two policies that were made alike are not the same but for their arrays: what is compiled for one, and the
    checkpoints of it, would not fit the other."""
    if not jax.tree.leaves(eqx.filter((one.torsos, one.actor, one.critic), _is_number)):
        raise ConfigError("Nothing in the networks of your own can be learned: they have no array of floating-point numbers.")
    if jax.tree.structure(one) == jax.tree.structure(other):
        return
    parts = {"encoder or memory": "torsos", "actor or distribution": "actor", "critic": "critic"}
    which = [
        name for name, part in parts.items() if jax.tree.structure(getattr(one, part)) != jax.tree.structure(getattr(other, part))
    ]
    raise ConfigError(
        f"The {' and '.join(which)} of your own, made twice alike, came out different: a function that is defined while it is made (as a lambda), or another "
        "object without equality. Define it at the top of the module, or in a method."
    )


def is_held(policy: ActorCritic) -> bool:
    """Whether ``hold_laws`` has anything to hold; arrays may be shapes."""
    return isinstance(policy.actor, OwnHead) or any(isinstance(t.cell, OwnCell) and t.cell.unrolls for t in policy.torsos)


def hold_laws(policy: ActorCritic, observation_space: Space, action_space: ActionSpace) -> None:
    """Raise ``ConfigError`` where a part of ``policy`` that is the user's breaks a law: an ``unroll`` of a memory that is not what its ``step``
    comes to, a distribution whose probabilities are none or whose samples are no actions."""
    for torso, memory in zip(policy.torsos, policy.init_memory(ENVS), strict=True):
        if isinstance(torso.cell, OwnCell) and torso.cell.unrolls:
            _hold_memory(torso.cell.held.setting, policy, torso, memory, observation_space)
    if isinstance(policy.actor, OwnHead):
        _hold_distribution(policy.actor, action_space)


def _hold_memory(setting: str, policy: ActorCritic, torso: Torso, memory: PyTree, space: Space) -> None:
    """Law: ``scan(step) == unroll``, with resets and filler rows inside the window, from a memory that is not empty; in full precision, which
    tells a mistake from rounding."""
    torso = dataclasses.replace(torso, compute_dtype="float32")
    rng = np.random.default_rng(0)
    first, valid = (jnp.asarray(rng.random((STEPS, ENVS)) < share) for share in (0.3, 0.7))
    before = jax.tree.map(lambda x: jnp.broadcast_to(x, (STEPS, *x.shape)), policy.nothing_before(ENVS))
    rows = policy.normalized(policy.observed(_random(rng, space, (STEPS, ENVS)), first, before)), first, valid

    def both(torso: Torso, memory: PyTree) -> tuple[PyTree, PyTree]:
        start, _ = jax.lax.scan(lambda m, row: torso.step(m, *row), memory, rows)
        stepped = jax.lax.scan(lambda m, row: torso.step(m, *row), start, rows)
        return stepped, torso.unroll(start, *rows)

    with users_code(f"{setting}: unroll(state, x, first, valid)", ConfigError):
        (state, out), (unrolled_state, unrolled) = jax.jit(both)(torso, memory)
    if described(out) != described(unrolled) or described(state) != described(unrolled_state):
        raise ConfigError(
            f"{setting}: unroll gives {described((unrolled_state, unrolled))}, where its step comes to {described((state, out))}."
        )
    off = [_difference(out[valid], unrolled[valid]), *map(_difference, *map(jax.tree.leaves, (state, unrolled_state)))]
    if not max(off) < TOLERANCE:  # what is not a number is not below it
        raise ConfigError(
            f"{setting}: unroll(state, x, first, valid) and its rows one by one through step differ by {max(off):.2g}. In both, `first` resets "
            "the state before its row is read, and a row that is not `valid` leaves the state as it was; or leave unroll out."
        )


def _difference(x: Array, y: Array) -> float:
    """The largest one, relative to the size of the numbers."""
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    return float(np.max(np.abs(a - b), initial=0.0) / max(1.0, np.max(np.abs(a), initial=0.0)))


def _random(rng: np.random.Generator, space: Space, lead: tuple[int, ...]) -> PyTree[Array]:
    """Observations of ``space``; integers at the lowest that they can be or one above."""

    def leaf(like: np.ndarray) -> np.ndarray:
        if np.issubdtype(like.dtype, np.floating):
            return rng.normal(size=like.shape).astype(like.dtype)
        return rng.integers(0, 2, like.shape).astype(like.dtype)

    return jax.tree.map(lambda like: jnp.asarray(leaf(like)), zeros(space, lead))


def _hold_distribution(head: OwnHead, space: ActionSpace) -> None:
    """Log-probabilities and entropies are finite; those of all choices add up to 1; samples are actions of the space."""
    rng, name = np.random.default_rng(0), "distribution"
    given = OwnDistribution(jnp.asarray(rng.normal(size=(DRAWS, head.num_parameters)), jnp.float32), head.family)
    with users_code(name, ConfigError):
        action = given.sample(head.noise(jax.random.key(0), (DRAWS,)))
        numbers = {
            "log_prob of a sample": given.log_prob(action),
            "entropy": given.entropy(),
            "log_prob of the mode": given.log_prob(given.mode()),
        }
        taken = {"a sample": head.to_space(action), "the mode": head.to_space(given.mode())}
    for what, x in numbers.items():
        if not np.isfinite(x).all():
            raise ConfigError(
                f"{name}: {what} is {np.asarray(x)[~np.isfinite(x)][0]} for some parameters: expected finite numbers."
            )
    for what, x in taken.items():
        if not _within(np.asarray(x), space):
            raise ConfigError(f"{name}: to_space makes of {what} an action outside of {space}.")
    if isinstance(space, Discrete) and space.n <= MOST_CHOICES and jnp.issubdtype(action.dtype, jnp.integer) and action.ndim == 1:
        low = int(np.asarray(taken["a sample"] - action).min())  # what to_space adds
        choices = space.start - low + jnp.arange(space.n, dtype=action.dtype)
        logs = jax.jit(jax.vmap(lambda n: given.log_prob(jnp.full(DRAWS, n, action.dtype))))(choices)
        total = np.exp(np.asarray(logs, np.float64)).sum(axis=0)
        if np.abs(total - 1.0).max() > TOLERANCE:
            raise ConfigError(
                f"{name}: the probabilities of the {space.n} actions add up to {total[np.abs(total - 1.0).argmax()]:.3g}, not to 1."
            )


def _within(action: np.ndarray, space: ActionSpace) -> bool:
    if isinstance(space, Box):
        low, high = space.bounds()
        slack = 1e-5 * np.where(np.isfinite(high - low), high - low, 1.0)
        return bool(((action >= low - slack) & (action <= high + slack)).all())
    if isinstance(space, Discrete):
        return bool(((action >= space.start) & (action < space.start + space.n)).all())
    if isinstance(space, MultiBinary):
        return bool(np.isin(action, (0, 1)).all())
    flat, start = action.reshape((len(action), -1)), np.array(space.start)
    return bool(((flat >= start) & (flat < start + np.array(space.nvec))).all())


def _is_number(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)
