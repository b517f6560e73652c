"""Conformance checks of custom networks, run once before training: mistakes that JAX does not report."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.errors import ConfigError
from proximo.networks.actor_critic import ActorCritic
from proximo.networks.custom.head import CustomDistribution, CustomHead
from proximo.networks.custom.networks import CustomCell
from proximo.spaces import Discrete, zeros

STEPS, ENVS, DRAWS = 6, 3, 256
TOLERANCE = 1e-3
"""Float32 rounding of two orders of summation stays below it. A missed reset or a step read twice exceeds it a hundredfold."""
MAX_CHOICES = 4096
"""The probabilities of a larger Discrete space are not summed."""


def check_custom_networks(make: Callable[[Key[Array, ""]], ActorCritic]) -> ActorCritic:
    """Run the conformance checks of a policy with custom networks. Only what they need is compiled.

    Two policies from the same settings must differ in their arrays only. A memory's own ``unroll`` must equal
    its ``step`` from step to step. A distribution must have finite log-probabilities and entropies, and
    probabilities that sum to 1.

    Args:
        make: Makes the policy from a random key.

    Returns:
        The policy, with ``jax.ShapeDtypeStruct`` instead of arrays.

    Raises:
        ConfigError: A check fails, or the user's code raises.
    """
    # A new function each time: JAX would not call the same one twice.
    shapes, other = (jax.eval_shape(lambda: make(jax.random.key(0))) for _ in range(2))
    if not any(
        jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves((shapes.torsos, shapes.actor, shapes.critic))
    ):
        raise ConfigError("Nothing in the custom networks can be learned: they have no array of floating-point numbers.")
    if jax.tree.structure(shapes) != jax.tree.structure(other):
        raise ConfigError(
            "The custom networks, made twice with the same arguments, came out different: one contains a function that is defined in its "
            "__init__ (as a lambda), or another object without equality. Define it at the top of the module, or in a method."
        )
    unrolls = [i for i, torso in enumerate(shapes.torsos) if isinstance(torso.cell, CustomCell) and torso.cell.has_unroll]
    if unrolls or isinstance(shapes.actor, CustomHead):
        policy = jax.jit(make)(jax.random.key(0))
        for i in unrolls:
            _check_unroll(policy.torsos[i].cell)
        if isinstance(policy.actor, CustomHead):
            _check_distribution(policy.actor)
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
        "unroll(state, x, episode_start, valid) and step after step differ. Both must reset the state before they read a step with "
        "episode_start, and leave the state unchanged on a step that is not valid. Or leave unroll out",
    )


def _check_distribution(head: CustomHead) -> None:
    parameters = np.random.default_rng(0).normal(size=(DRAWS, head.family.module.num_parameters))
    distribution, space = CustomDistribution(jnp.asarray(parameters, jnp.float32), head.family), head.space
    sample = distribution.sample(head.noise(jax.random.key(0), (DRAWS,)))
    numbers = distribution.log_prob(sample), distribution.log_prob(distribution.mode()), distribution.entropy()
    head.family.expect(bool(np.isfinite(numbers).all()), "log_prob or entropy is not finite for some parameters")
    if isinstance(space, Discrete) and space.n <= MAX_CHOICES and jnp.issubdtype(sample.dtype, jnp.integer) and sample.ndim == 1:
        first = space.start - (head.to_space(sample) - sample)[0]
        choices = (first + jnp.arange(space.n)).astype(sample.dtype)
        total = jnp.exp(jax.vmap(lambda choice: distribution.log_prob(jnp.full(DRAWS, choice)))(choices)).sum(0)
        furthest = float(total[jnp.abs(total - 1.0).argmax()])
        is_one = abs(furthest - 1.0) < TOLERANCE
        head.family.expect(is_one, f"the probabilities of the {space.n} actions add up to {furthest:.3g}, not to 1")
