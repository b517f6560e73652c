"""Conformance checks of custom networks, run once before training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

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

    Two policies from the same settings must differ in their arrays only. A memory's own ``unroll`` must equal
    its ``step`` from step to step. A distribution must have finite log-probabilities and entropies,
    probabilities that sum to 1, and samples within the action space.

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
    shapes, other = (jax.eval_shape(lambda: make(jax.random.key(0))) for _ in range(2))
    _check_alike(shapes, other)
    unrolls = [i for i, torso in enumerate(shapes.torsos) if isinstance(torso.cell, CustomCell) and torso.cell.has_unroll]
    if unrolls or isinstance(shapes.actor, CustomHead):
        policy = jax.jit(make)(jax.random.key(0))
        for i in unrolls:
            _check_unroll(policy, policy.torsos[i], policy.init_memory(ENVS)[i], observation_space)
        if isinstance(policy.actor, CustomHead):
            _check_distribution(policy.actor, action_space)
    return shapes


def _check_alike(one: ActorCritic, other: ActorCritic) -> None:
    """Check that two policies made from the same settings have parameters, and differ in their arrays only.

    Otherwise neither compiled programs nor checkpoints of one would fit the other.
    """
    if not any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves((one.torsos, one.actor, one.critic))):
        raise ConfigError("Nothing in the custom networks can be learned: they have no array of floating-point numbers.")
    parts = {"encoder or memory": "torsos", "actor or distribution": "actor", "critic": "critic"}
    which = [name for name, x in parts.items() if jax.tree.structure(getattr(one, x)) != jax.tree.structure(getattr(other, x))]
    if which:
        raise ConfigError(
            f"The custom {' and '.join(which)}, made twice with the same arguments, came out different: it contains a function that is defined "
            "in its __init__ (as a lambda), or another object without equality. Define it at the top of the module, or in a method."
        )


def _check_unroll(policy: ActorCritic, torso: Torso, memory: PyTree, space: Space) -> None:
    """``scan(step) == unroll`` with resets and padding steps in the window, from a memory that is not empty.

    It is computed in float32, where a mistake exceeds the rounding.
    """
    custom = torso.cell.custom  # pyright: ignore[reportAttributeAccessIssue]
    torso = dataclasses.replace(torso, compute_dtype="float32")
    rng = np.random.default_rng(0)
    episode_start, valid = (jnp.asarray(rng.random((STEPS, ENVS)) < share) for share in (0.3, 0.7))

    def random(like: np.ndarray) -> Array:  # integers are 0 or 1
        x = rng.normal(size=like.shape)
        return jnp.asarray(x if np.issubdtype(like.dtype, np.floating) else x > 0, like.dtype)

    previous = jax.tree.map(lambda x: jnp.broadcast_to(x, (STEPS, *x.shape)), policy.no_previous_step(ENVS))
    observation = policy.with_previous_step(jax.tree.map(random, zeros(space, (STEPS, ENVS))), episode_start, previous)
    inputs = policy.normalize(observation), episode_start, valid

    def both(torso: Torso, memory: PyTree) -> tuple[PyTree, PyTree]:
        start, _ = jax.lax.scan(lambda m, x: torso.run("step", m, *x), memory, inputs)
        return jax.lax.scan(lambda m, x: torso.run("step", m, *x), start, inputs), torso.run("unroll", start, *inputs)

    with custom_code_errors(f"{custom.setting}: unroll(state, x, episode_start, valid)", ConfigError):
        stepped, unrolled = jax.jit(both)(torso, memory)
    shapes = describe_shape(unrolled), describe_shape(stepped)
    custom.expect(shapes[0] == shapes[1], f"unroll gives {shapes[0]}, and step after step gives {shapes[1]}: expected the same")
    (state, out), (unrolled_state, unrolled_out) = stepped, unrolled
    pairs = zip(jax.tree.leaves((state, out[valid])), jax.tree.leaves((unrolled_state, unrolled_out[valid])), strict=True)
    error = np.max([_difference(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in pairs])
    custom.expect(
        bool(error < TOLERANCE),  # false for NaN
        f"unroll(state, x, episode_start, valid) and step after step differ by {error:.2g}. Both must reset the state before they read a step "
        "with episode_start, and leave the state unchanged on a step that is not valid. Or leave unroll out",
    )


def _difference(x: np.ndarray, y: np.ndarray) -> float:
    """The largest difference, relative to the largest number of at least 1."""
    return float(np.max(np.abs(x - y), initial=0.0) / max(1.0, np.max(np.abs(x), initial=0.0)))


def _check_distribution(head: CustomHead, space: ActionSpace) -> None:
    shape, expect = (DRAWS, head.family.module.num_parameters), head.family.expect
    distribution = CustomDistribution(jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32), head.family)
    with custom_code_errors("distribution", ConfigError):
        sample, mode = distribution.sample(head.noise(jax.random.key(0), (DRAWS,))), distribution.mode()
        numbers = {
            "log_prob of a sample": distribution.log_prob(sample),
            "entropy": distribution.entropy(),
            "log_prob of the mode": distribution.log_prob(mode),
        }
        taken = {"a sample": np.asarray(head.to_space(sample)), "the mode": np.asarray(head.to_space(mode))}
    for what, x in numbers.items():
        for wrong in np.asarray(x)[~np.isfinite(x)]:
            expect(False, f"{what} is {wrong} for some parameters: expected finite numbers")
    for what, x in taken.items():
        expect(_contains(space, x), f"to_space maps {what} to an action outside of {space}")
    if isinstance(space, Discrete) and space.n <= MAX_CHOICES and jnp.issubdtype(sample.dtype, jnp.integer) and sample.ndim == 1:
        choices = space.start - int((taken["a sample"] - sample).min()) + jnp.arange(space.n, dtype=sample.dtype)
        logs = jax.jit(jax.vmap(lambda n: distribution.log_prob(jnp.full(DRAWS, n, sample.dtype))))(choices)
        total = np.exp(np.asarray(logs, np.float64)).sum(axis=0)
        furthest = total[np.abs(total - 1.0).argmax()]
        is_one = bool(abs(furthest - 1.0) < TOLERANCE)
        expect(is_one, f"the probabilities of the {space.n} actions add up to {furthest:.3g}, not to 1")


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
