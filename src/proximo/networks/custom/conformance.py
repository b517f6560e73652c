"""Conformance checks of custom networks, run once before training: mistakes that JAX does not report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.errors import ConfigError
from proximo.networks.actor_critic import ActorCritic
from proximo.networks.custom.networks import CustomCell
from proximo.spaces import zeros

STEPS, ENVS = 6, 3
TOLERANCE = 1e-3
"""Float32 rounding of two orders of summation stays below it. A missed reset or a step read twice exceeds it a hundredfold."""


def check_custom_networks(make: Callable[[Key[Array, ""]], ActorCritic]) -> ActorCritic:
    """Run the conformance checks of a policy with custom networks, after the checks of shapes. Only what they need is compiled.

    Args:
        make: Makes the policy from a random key.

    Returns:
        The policy, with ``jax.ShapeDtypeStruct`` instead of arrays.

    Raises:
        ConfigError: Two policies from the same settings differ in more than their arrays; nothing can be learned; or a
            memory's own ``unroll`` differs from repeated calls of its ``step``.
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
    return shapes


def _check_unroll(cell: CustomCell) -> None:
    """``scan(step) == unroll`` with resets and padding steps, from a state that is not empty."""
    rng = np.random.default_rng(0)
    flags = [jnp.asarray(rng.random((STEPS, ENVS)) < share) for share in (0.3, 0.7)]
    x = jax.tree.map(lambda like: jnp.asarray(rng.normal(size=like.shape) > 0, like.dtype), zeros(cell.space, (STEPS, ENVS)))

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
