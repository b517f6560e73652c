"""Conformance checks of custom networks, run once before training: mistakes that JAX does not report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.custom_code import custom_code_errors
from proximo.errors import ConfigError
from proximo.networks.actor_critic import ActorCritic
from proximo.networks.custom.head import CustomDistribution, CustomHead
from proximo.networks.custom.networks import CustomCell
from proximo.spaces import ActionSpace, Box, Discrete, MultiBinary, components, zeros

STEPS, ENVS, DRAWS = 6, 3, 256
TOLERANCE = 1e-3
"""Float32 rounding of two orders of summation stays below it. A missed reset or a step read twice exceeds it a hundredfold."""
MAX_CHOICES = 4096
"""The probabilities of a larger Discrete space are not summed."""


def check_custom_networks(make: Callable[[Key[Array, ""]], ActorCritic]) -> ActorCritic:
    """Run the conformance checks of a policy with custom networks, after the checks of shapes. Only what they need is compiled.

    Args:
        make: Makes the policy from a random key.

    Returns:
        The policy, with ``jax.ShapeDtypeStruct`` instead of arrays.

    Raises:
        ConfigError: Two policies from the same settings differ in more than their arrays; nothing can be learned; a
            memory's own ``unroll`` differs from repeated calls of its ``step``; or a distribution has numbers that are not
            finite, probabilities that do not sum to 1, or actions outside the space.
    """
    # A new function each time: JAX would not call the same one twice.
    shapes, other = (jax.eval_shape(lambda: make(jax.random.key(0))) for _ in range(2))
    networks = jax.tree.leaves(dataclasses.replace(shapes, normalizer=None))
    if not any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in networks):
        raise ConfigError("Nothing in the custom networks can be learned: they have no array of floating-point numbers.")
    if jax.tree.structure(shapes) != jax.tree.structure(other):
        raise ConfigError(
            "The custom networks, made twice with the same arguments, differ: one contains a function that is defined in its "
            "__init__, such as a lambda, or another object without equality. Define it at the top of the module, or in a method."
        )
    for i, torso in enumerate(shapes.torsos):
        if isinstance(torso.cell, CustomCell) and torso.cell.has_unroll:
            cell: Any = jax.jit(lambda i=i: make(jax.random.key(0)).torsos[i].cell)()
            _check_unroll(cell)
    if isinstance(shapes.actor, CustomHead):
        _check_distribution(jax.jit(lambda: make(jax.random.key(0)).actor)())
    return shapes


def _check_unroll(cell: CustomCell) -> None:
    """``scan(step) == unroll`` with resets and padding steps, from a state that is not empty."""
    rng = np.random.default_rng(0)
    flags = [jnp.asarray(rng.random((STEPS, ENVS)) < share) for share in (0.3, 0.7)]

    def random(like: np.ndarray) -> Array:  # integers are 0 or 1
        x = rng.normal(size=like.shape)
        return jnp.asarray(x if np.issubdtype(like.dtype, np.floating) else x > 0, like.dtype)

    x = jax.tree.map(random, zeros(cell.space, (STEPS, ENVS)))

    @jax.jit
    def both(cell: CustomCell) -> list:
        def stepped(state: Array) -> tuple:
            return jax.lax.scan(lambda s, inputs: cell.step(s, *inputs), state, (x, *flags))

        start, _ = stepped(cell.init(ENVS))
        results = stepped(start), cell.unroll(start, x, *flags)
        return [jax.tree.leaves((state, jnp.where(flags[1][..., None], out, 0))) for state, out in results]

    pairs = zip(*both(cell), strict=True)
    cell.custom.expect(
        all(x.shape == y.shape and np.allclose(x, y, TOLERANCE, TOLERANCE) for x, y in pairs),
        "unroll(state, x, episode_start, valid) differs from repeated calls of step. unroll must reset the state at each step with "
        "episode_start, before it reads x, and must keep the state on steps that are not valid. Or remove unroll",
    )


def _check_distribution(head: CustomHead) -> None:
    """Finite log-probabilities and entropies, probabilities that sum to 1, and actions within the space."""
    space = head.space
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
