"""The hand-written gradients of the recurrences equal automatic differentiation, and both scans equal the loop."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import NetworkConfig
from proximo.networks.recurrent import CELLS
from proximo.networks.recurrent.linear_recurrence import (
    associative_scan,
    associative_scan_backwards,
    linear_recurrence,
    sequential_scan,
    sequential_scan_backwards,
)
from proximo.networks.recurrent.protocol import MemoryCell

from helpers import difference, shaken

ENVS, FEATURES, SIZE = 3, 4, 5
STEPS = {"lstm": 5, "lru": 5}
"""Fewer than the 11 steps of the other cells, which are more than the steps in one iteration of the scan."""


def gradients(unroll, cell, state, x, episode_start, valid):
    weight = jnp.asarray(np.random.default_rng(5).normal(size=(*episode_start.shape, SIZE)), jnp.float32)

    def objective(cell, state, x):
        last, outputs = unroll(cell, state, x, episode_start, valid)
        return jnp.sum(weight * jnp.sin(outputs)) + sum(jnp.sum(jnp.cos(leaf)) for leaf in jax.tree.leaves(last))

    return jax.grad(objective, argnums=(0, 1, 2))(cell, state, x)


@functools.cache
def errors(name):
    rng = np.random.default_rng(4)
    cell = shaken(CELLS[name].create(jax.random.key(0), FEATURES, NetworkConfig(memory_size=SIZE)))
    state = jax.tree.map(lambda m: jnp.asarray(rng.normal(size=m.shape), m.dtype), cell.init(ENVS))
    shape = (STEPS.get(name, 11), ENVS)
    x = jnp.asarray(rng.normal(size=(*shape, FEATURES)), jnp.float32)
    episode_start = jnp.asarray(rng.random(shape) < 0.2).at[0].set(jnp.array([True, False, False])).at[2, 1].set(True)
    valid = jnp.asarray(rng.random(shape) > 0.2).at[1, 2].set(False)

    @jax.jit
    def measure(cell, state, x):
        expected = gradients(MemoryCell.unroll, cell, state, x, episode_start, valid)  # whose gradient JAX derives
        mutated = {
            "unchanged": (episode_start, valid),
            "episode_start shifted by one": (jnp.roll(episode_start, 1, 0), valid),
            "resets ignored": (jnp.zeros_like(episode_start), valid),
            "padding as data": (episode_start, jnp.ones_like(valid)),
        }

        def against(episode_start, valid):
            return difference(gradients(type(cell).unroll, cell, state, x, episode_start, valid), expected)

        flags = jax.tree.map(lambda *leaves: jnp.stack(leaves), *mutated.values())
        return dict(zip(mutated, jax.vmap(against)(*flags), strict=True))

    return jax.device_get(measure(cell, state, x))


@pytest.mark.parametrize("cell", [name for name in CELLS if name != "gtrxl"])
def test_hand_written_gradient_equals_automatic_differentiation(cell):
    assert errors(cell)["unchanged"] < 1e-5
    assert min(error for name, error in errors(cell).items() if name != "unchanged") > 1e-2


def test_only_gates_that_read_a_sum_may_be_added(monkeypatch):
    """The candidate of the GRU is not one; to add none is always correct."""
    monkeypatch.setattr(CELLS["gru"], "added_gates", 3)
    assert errors.__wrapped__("gru")["unchanged"] > 1e-2
    monkeypatch.setattr(CELLS["lstm"], "added_gates", 0)
    assert errors.__wrapped__("lstm")["unchanged"] < 1e-5


def coefficients(steps, kind):
    parts = np.random.default_rng(1).normal(size=(2, 2, steps, ENVS, SIZE))
    decay, drive = parts[0] + 1j * parts[1] if kind == "complex" else parts[0]
    decay[2, 1] = 0.0  # a reset
    return tuple(jnp.asarray(x, jnp.complex64 if kind == "complex" else jnp.float32) for x in (0.5 * decay, drive))


@pytest.mark.parametrize("ways", [(sequential_scan, sequential_scan_backwards), (associative_scan, associative_scan_backwards)])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_each_scan_equals_the_loop(kind, ways):
    decay, drive = (np.asarray(x) for x in coefficients(13, kind))
    h, later = drive[0] * 0.3, np.zeros_like(drive[0])
    forwards, backwards = np.zeros((2, *drive.shape), drive.dtype)
    for t in range(13):
        forwards[t] = h = decay[t] * h + drive[t]
    for t in reversed(range(13)):
        backwards[t] = drive[t] + later
        later = decay[t] * backwards[t]
    np.testing.assert_allclose(jax.jit(ways[0])(decay, drive, drive[0] * 0.3), forwards, atol=1e-5)
    np.testing.assert_allclose(jax.jit(ways[1])(decay, drive), backwards, atol=1e-5)


def gradients_of(way, kind):
    """The gradients of a function of all states, compiled; and their arguments."""
    decay, drive = coefficients(7, kind)

    def value(decay, drive, state):
        h = way(decay, drive, state)
        return jnp.sum(jnp.sin(h.real) * jnp.cos(h.imag) if kind == "complex" else jnp.sin(h))

    return jax.jit(jax.grad(value, argnums=(0, 1, 2))), (decay, drive, drive[0] * 0.3)


@pytest.mark.parametrize(("platform", "loops"), [("cpu", 2), ("cuda", 0)])
def test_scan_is_sequential_on_cpus_only(platform, loops):
    """Once forwards and once backwards; on an accelerator the depth is logarithmic, without a loop."""
    program, arguments = gradients_of(linear_recurrence, "real")
    lowered = program.trace(*arguments).lower(lowering_platforms=(platform,))
    assert lowered.as_text().count("stablehlo.while") == loops


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_gradient_of_a_linear_recurrence_equals_automatic_differentiation(kind):
    (ours, arguments), (automatic, _) = (gradients_of(way, kind) for way in (linear_recurrence, sequential_scan))
    for by_hand, expected in zip(ours(*arguments), automatic(*arguments), strict=True):
        np.testing.assert_allclose(by_hand, expected, atol=1e-5, rtol=1e-5)
        assert float(jnp.abs(expected).max()) > 0.1
