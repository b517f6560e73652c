"""Conformance checks of custom networks, run once before training: mistakes that JAX does not report."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.custom_code import custom_code_errors
from proximo.errors import ConfigError
from proximo.networks.actor_critic import ActorCritic
from proximo.networks.custom.networks import CustomCell, CustomDistribution, CustomHead
from proximo.networks.recurrent.protocol import MemoryCell
from proximo.spaces import Box, Discrete, LeafSpace, MultiBinary, components, zeros

STEPS, ENVS, DRAWS = 6, 3, 256
TOLERANCE = 1e-3
"""Float32 rounding stays below it. A missed reset or a step read twice exceeds it a hundredfold."""
MAX_CHOICES = 4096
"""The probabilities of a larger Discrete space are not summed."""


def check_custom_networks(make: Callable[[Key[Array, ""]], ActorCritic]) -> ActorCritic:
    """Check the policy that ``make`` returns for a random key, after the checks of shapes.
    Returns the policy with ``jax.ShapeDtypeStruct`` instead of arrays. Raises ``ConfigError``."""
    # A new function each time: JAX would not call the same one twice.
    shapes, other = (jax.eval_shape(lambda: make(jax.random.key(0))) for _ in range(2))
    networks = jax.tree.leaves(dataclasses.replace(shapes, normalizer=None))
    memory = jax.tree.leaves(jax.eval_shape(lambda policy: policy.init_memory(1), shapes))
    if any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in (*networks, *memory)):
        raise ConfigError("The custom networks have complex numbers: store real and imaginary parts as two real arrays.")
    if not any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in networks):
        raise ConfigError("Nothing in the custom networks can be learned: they have no array of floating-point numbers.")
    if jax.tree.structure(shapes) != jax.tree.structure(other):
        raise ConfigError(
            "The custom networks, made twice with the same arguments, differ: one contains a function that is defined in its "
            "__init__, such as a lambda, or another object without equality. Define it at the top of the module, or in a method."
        )
    for i, torso in enumerate(shapes.torsos):
        if isinstance(torso.cell, CustomCell) and torso.cell.has_unroll:
            _check_unroll(jax.jit(lambda i=i: make(jax.random.key(0)).torsos[i].cell)())
    if isinstance(shapes.actor, CustomHead):
        _check_distribution(jax.jit(lambda: make(jax.random.key(0)).actor)())
    return shapes


def _check_unroll(cell: CustomCell) -> None:
    """``scan(step) == unroll`` with resets and padding steps, from a state that is not empty."""
    rng = np.random.default_rng(0)

    def random(like: np.ndarray) -> Array:  # numbers of both signs; integers are 0 or 1
        x = rng.normal(size=like.shape)
        return jnp.asarray(x if np.issubdtype(like.dtype, np.floating) else x > 0, like.dtype)

    x = jax.tree.map(random, zeros(cell.space, (STEPS, ENVS)))
    episode_start, valid = jnp.asarray(rng.random((2, STEPS, ENVS)) < [[[0.3]], [[0.7]]])

    @jax.jit
    def both(cell):
        state, _ = MemoryCell.unroll(cell, cell.init(ENVS), x, episode_start, valid)
        results = [unroll(cell, state, x, episode_start, valid) for unroll in (MemoryCell.unroll, CustomCell.unroll)]
        return [jax.tree.leaves((last, jax.tree.map(lambda x: jnp.where(valid[..., None], x, 0), out))) for last, out in results]

    pairs = zip(*both(cell), strict=True)
    cell.custom.expect(
        all(x.shape == y.shape and np.allclose(x, y, TOLERANCE, TOLERANCE) for x, y in pairs),
        "unroll(state, x, episode_start, valid) differs from repeated calls of step. unroll must reset the state at each step with "
        "episode_start, before it reads x, and must keep the state on steps that are not valid. Or remove unroll",
    )


def _check_distribution(head: CustomHead) -> None:
    """Finite log-probabilities and entropies, probabilities that sum to 1, and actions within the space."""
    space, shape, expect = head.space, (DRAWS, head.family.module.num_parameters), head.family.expect
    distribution = CustomDistribution(jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32), head.family)
    with custom_code_errors("distribution", ConfigError):
        sample = distribution.sample(head.noise(jax.random.key(0), (DRAWS,)))
        actions = {"a sample": sample, "the mode": distribution.mode()}
        numbers = {f"log_prob of {name}": distribution.log_prob(action) for name, action in actions.items()}
        numbers["entropy"] = distribution.entropy()
        taken = {name: np.asarray(head.to_space(action)) for name, action in actions.items()}
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
        fits = abs(furthest - 1.0) < TOLERANCE
        expect(bool(fits), f"the probabilities of the {space.n} actions add up to {furthest:.3g}, not to 1")


def _contains(space: LeafSpace, action: np.ndarray) -> bool:
    """Whether each of a batch of actions lies in ``space``."""
    if isinstance(space, Box):
        low, high = space.bounds()
        slack = 1e-5 * np.where(np.isfinite(high - low), high - low, 1.0)
        return bool(((action >= low - slack) & (action <= high + slack)).all())
    nvec, start = ((2,), (0,)) if isinstance(space, MultiBinary) else components(space)
    index = action.reshape((len(action), -1)) - np.array(start)
    return bool(((index >= 0) & (index < np.array(nvec)) & (index % 1 == 0)).all())
