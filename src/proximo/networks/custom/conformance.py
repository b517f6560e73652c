"""Conformance checks of custom networks, run once before training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.custom_code import custom_code_errors
from proximo.errors import ConfigError
from proximo.networks.actor_critic import ActorCritic
from proximo.networks.custom.head import CustomDistribution, CustomHead
from proximo.networks.custom.module import describe_shape
from proximo.networks.custom.networks import CustomCell
from proximo.networks.torso import Torso
from proximo.spaces import ActionSpace, Box, Discrete, MultiBinary, Space, components, zeros

STEPS, ENVS, DRAWS = 6, 3, 256
TOLERANCE = 1e-3
"""Float32 rounding of two orders of summation stays below it. A missed reset or a step read twice exceeds it a hundredfold."""
MAX_CHOICES = 4096
"""The probabilities of a larger Discrete space are not summed."""


def check_custom_networks(
    make: Callable[[Key[Array, ""]], ActorCritic], observation_space: Space, action_space: ActionSpace
) -> ActorCritic:
    """Run the conformance checks of a policy with custom networks. Only what they need is compiled.

    Two policies from the same settings must differ in their arrays only. A memory's own ``unroll`` must equal its ``step`` from step to step.
    A distribution must have finite log-probabilities and entropies, probabilities that sum to 1, and samples within the action space.

    Args:
        make: Makes the policy from a random key.
        observation_space: Space of the environment's observations.
        action_space: Space of the actions.

    Returns:
        The policy, with ``jax.ShapeDtypeStruct`` instead of arrays.

    Raises:
        ConfigError: A check fails, or the user's code raises.
    """
    # A new function each time: JAX would not call the same one twice.
    policy, other = (jax.eval_shape(lambda: make(jax.random.key(0))) for _ in range(2))
    _check_alike(policy, other)
    if isinstance(policy.actor, CustomHead) or any(map(_has_custom_unroll, policy.torsos)):
        _check_outputs(jax.jit(make)(jax.random.key(0)), observation_space, action_space)
    return policy


def _check_alike(one: ActorCritic, other: ActorCritic) -> None:
    """Check that two policies made from the same settings differ in their arrays only.

    Otherwise neither compiled programs nor checkpoints of one would fit the other.
    """
    if not any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves((one.torsos, one.actor, one.critic))):
        raise ConfigError("Nothing in the custom networks can be learned: they have no array of floating-point numbers.")
    parts = {"encoder or memory": "torsos", "actor or distribution": "actor", "critic": "critic"}
    structures = [[jax.tree.structure(getattr(policy, part)) for part in parts.values()] for policy in (one, other)]
    which = [name for name, a, b in zip(parts, *structures, strict=True) if a != b]
    if which:
        raise ConfigError(
            f"The custom {' and '.join(which)}, made twice with the same arguments, came out different: it contains a function that is defined "
            "in its __init__ (as a lambda), or another object without equality. Define it at the top of the module, or in a method."
        )


def _check_outputs(policy: ActorCritic, observation_space: Space, action_space: ActionSpace) -> None:
    for torso, memory in zip(policy.torsos, policy.init_memory(ENVS), strict=True):
        if _has_custom_unroll(torso):
            _check_memory(policy, torso, memory, observation_space)
    if isinstance(policy.actor, CustomHead):
        _check_distribution(policy.actor, action_space)


def _has_custom_unroll(torso: Torso) -> bool:
    return isinstance(torso.cell, CustomCell) and torso.cell.has_unroll


def _check_memory(policy: ActorCritic, torso: Torso, memory: PyTree, space: Space) -> None:
    """``scan(step) == unroll`` with resets and padding steps inside the window, from a memory that is not empty.

    It is computed in float32, where a mistake exceeds the rounding.
    """
    setting = torso.cell.custom.setting if isinstance(torso.cell, CustomCell) else ""
    torso = dataclasses.replace(torso, compute_dtype="float32")
    rng = np.random.default_rng(0)
    episode_start, valid = (jnp.asarray(rng.random((STEPS, ENVS)) < share) for share in (0.3, 0.7))
    previous = jax.tree.map(lambda x: jnp.broadcast_to(x, (STEPS, *x.shape)), policy.no_previous_step(ENVS))
    observation = policy.with_previous_step(_random_observation(rng, space, (STEPS, ENVS)), episode_start, previous)
    inputs = policy.normalize(observation), episode_start, valid

    def both(torso: Torso, memory: PyTree) -> tuple[PyTree, PyTree]:
        start, _ = jax.lax.scan(lambda m, x: torso.run("step", m, *x), memory, inputs)
        stepped = jax.lax.scan(lambda m, x: torso.run("step", m, *x), start, inputs)
        return stepped, torso.run("unroll", start, *inputs)

    with custom_code_errors(f"{setting}: unroll(state, x, episode_start, valid)", ConfigError):
        (state, out), (unrolled_state, unrolled) = jax.jit(both)(torso, memory)
    if describe_shape(out) != describe_shape(unrolled) or describe_shape(state) != describe_shape(unrolled_state):
        raise ConfigError(
            f"{setting}: unroll gives {describe_shape((unrolled_state, unrolled))}, and step after step gives {describe_shape((state, out))}: "
            "expected the same."
        )
    errors = [_difference(out[valid], unrolled[valid]), *map(_difference, *map(jax.tree.leaves, (state, unrolled_state)))]
    if not max(errors) < TOLERANCE:  # also raises for NaN
        raise ConfigError(
            f"{setting}: unroll(state, x, episode_start, valid) and step after step differ by {max(errors):.2g}. Both must reset the state before "
            "they read a step with episode_start, and leave the state unchanged on a step that is not valid. Or leave unroll out."
        )


def _difference(x: Array, y: Array) -> float:
    """The largest difference, relative to the largest number of at least 1."""
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    return float(np.max(np.abs(a - b), initial=0.0) / max(1.0, np.max(np.abs(a), initial=0.0)))


def _random_observation(rng: np.random.Generator, space: Space, lead: tuple[int, ...]) -> PyTree[Array]:
    """Random observations of ``space``; integers are 0 or 1."""

    def leaf(like: np.ndarray) -> Array:
        x = rng.normal(size=like.shape)
        return jnp.asarray(x if np.issubdtype(like.dtype, np.floating) else x > 0, like.dtype)

    return jax.tree.map(leaf, zeros(space, lead))


def _check_distribution(head: CustomHead, space: ActionSpace) -> None:
    rng = np.random.default_rng(0)
    shape = (DRAWS, head.family.module.num_parameters)
    distribution = CustomDistribution(jnp.asarray(rng.normal(size=shape), jnp.float32), head.family)
    with custom_code_errors("distribution", ConfigError):
        action = distribution.sample(head.noise(jax.random.key(0), (DRAWS,)))
        numbers = {
            "log_prob of a sample": distribution.log_prob(action),
            "entropy": distribution.entropy(),
            "log_prob of the mode": distribution.log_prob(distribution.mode()),
        }
        taken = {"a sample": head.to_space(action), "the mode": head.to_space(distribution.mode())}
    for what, x in numbers.items():
        if not np.isfinite(x).all():
            raise ConfigError(
                f"distribution: {what} is {np.asarray(x)[~np.isfinite(x)][0]} for some parameters: expected finite numbers."
            )
    for what, x in taken.items():
        if not _contains(space, np.asarray(x)):
            raise ConfigError(f"distribution: to_space maps {what} to an action outside of {space}.")
    if isinstance(space, Discrete) and space.n <= MAX_CHOICES and jnp.issubdtype(action.dtype, jnp.integer) and action.ndim == 1:
        _check_probabilities(distribution, space, action.dtype, int(np.asarray(taken["a sample"] - action).min()))


def _check_probabilities(distribution: CustomDistribution, space: Discrete, dtype: Any, offset: int) -> None:
    """Probabilities of all actions sum to 1; ``to_space`` adds ``offset`` to a sample."""
    choices = space.start - offset + jnp.arange(space.n, dtype=dtype)
    logs = jax.jit(jax.vmap(lambda n: distribution.log_prob(jnp.full(DRAWS, n, dtype))))(choices)
    total = np.exp(np.asarray(logs, np.float64)).sum(axis=0)
    if np.abs(total - 1.0).max() > TOLERANCE:
        raise ConfigError(
            f"distribution: the probabilities of the {space.n} actions add up to {total[np.abs(total - 1.0).argmax()]:.3g}, not to 1."
        )


def _contains(space: ActionSpace, action: np.ndarray) -> bool:
    """Whether each of a batch of actions lies in ``space``."""
    if isinstance(space, Box):
        low, high = space.bounds()
        slack = 1e-5 * np.where(np.isfinite(high - low), high - low, 1.0)
        return bool(((action >= low - slack) & (action <= high + slack)).all())
    if isinstance(space, MultiBinary):
        return bool(np.isin(action, (0, 1)).all())
    nvec, start = map(np.array, components(space))
    index = action.reshape((len(action), -1)) - start
    return bool(((index >= 0) & (index < nvec)).all())
