"""Linear recurrences: both scans equal the loop, their gradients the automatic ones, and the cells their papers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import NetworkConfig
from proximo.networks.recurrent import LRU, MinGRU
from proximo.networks.recurrent.linear_recurrence import (
    associative_scan,
    associative_scan_backwards,
    linear_recurrence,
    sequential_scan,
    sequential_scan_backwards,
)

from helpers import drawn

ENVS, FEATURES, SIZE = 3, 4, 6


def coefficients(steps, kind):
    rng = np.random.default_rng(1)
    parts = rng.normal(size=(2, 2, steps, ENVS, SIZE))
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


def gradients(way, kind, steps=7):
    """The gradients of a function of all states, compiled; and their arguments."""
    decay, drive = coefficients(steps, kind)

    def value(decay, drive, state):
        h = way(decay, drive, state)
        return jnp.sum(jnp.sin(h.real) * jnp.cos(h.imag) if kind == "complex" else jnp.sin(h))

    return jax.jit(jax.grad(value, argnums=(0, 1, 2))), (decay, drive, drive[0] * 0.3)


@pytest.mark.parametrize(("platform", "loops"), [("cpu", 2), ("cuda", 0)])
def test_scan_is_sequential_on_cpus_only(platform, loops):
    """Once forwards and once backwards; on an accelerator the depth is logarithmic, without a loop."""
    program, arguments = gradients(linear_recurrence, "real")
    lowered = program.trace(*arguments).lower(lowering_platforms=(platform,))
    assert lowered.as_text().count("stablehlo.while") == loops


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_hand_written_gradient_equals_automatic_differentiation(kind):
    (ours, arguments), (automatic, _) = gradients(linear_recurrence, kind), gradients(sequential_scan, kind)
    for by_hand, expected in zip(ours(*arguments), automatic(*arguments), strict=True):
        np.testing.assert_allclose(by_hand, expected, atol=1e-5, rtol=1e-5)
        assert float(jnp.abs(expected).max()) > 0.1


def one_step(cls):
    cell = drawn(lambda key: cls.create(key, FEATURES, NetworkConfig(memory_size=SIZE)))
    rng = np.random.default_rng(6)
    x = jnp.asarray(rng.normal(size=(ENVS, FEATURES)), jnp.float32)
    state = jax.tree.map(lambda m: jnp.asarray(rng.normal(size=m.shape), jnp.float32), cell.init(ENVS))
    after, output = jax.jit(lambda *row: cell.step(*row))(state, x, jnp.zeros(ENVS, bool), jnp.ones(ENVS, bool))
    u = np.asarray(x @ cell.input.weight + cell.input.bias)
    v = u / np.sqrt((u**2).mean(-1, keepdims=True) + 1e-6)
    return cell, np.asarray(state), u, v, np.asarray(after), np.asarray(output)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def affine(layer, x):
    return x @ np.asarray(layer.weight) + np.asarray(layer.bias)


def gated(cell, u, read):
    value, gate = np.split(affine(cell.output, read), 2, -1)
    return u + value * sigmoid(gate)


def test_mingru_follows_feng_et_al():
    cell, h, u, v, after, output = one_step(MinGRU)
    z = sigmoid(affine(cell.gate, v))
    expected = (1 - z) * h + z * affine(cell.candidate, v)
    np.testing.assert_allclose(after, expected, atol=1e-5)
    np.testing.assert_allclose(output, gated(cell, u, expected), atol=1e-5)


def test_lru_follows_orvieto_et_al():
    cell, state, u, v, after, output = one_step(LRU)
    eigenvalue = np.exp(-np.exp(np.asarray(cell.log_decay)) + 1j * np.asarray(cell.phase))
    written = affine(cell.write, v)
    drive = (written[:, :SIZE] + 1j * written[:, SIZE:]) * np.exp(np.asarray(cell.log_gamma))
    h = eigenvalue * (state[:, :SIZE] + 1j * state[:, SIZE:]) + drive
    packed = np.concatenate([h.real, h.imag], -1)
    np.testing.assert_allclose(after, packed, atol=1e-5)
    np.testing.assert_allclose(output, gated(cell, u, affine(cell.reader, packed) + np.asarray(cell.skip) * v), atol=1e-5)


def test_an_lru_starts_with_all_horizons_small_phases_and_drives_of_unit_variance():
    cell = LRU.create(jax.random.key(0), FEATURES, NetworkConfig(memory_size=1024))
    radius = np.exp(-np.exp(np.asarray(cell.log_decay)))
    horizon = np.sort(1 / (1 - radius))
    assert 2 <= horizon[0] < 2.5
    assert 800 < horizon[-1] <= 1001
    quantiles = np.quantile(np.log(horizon / 2) / np.log(500), [0.1, 0.5, 0.9])
    np.testing.assert_allclose(quantiles, [0.1, 0.5, 0.9], atol=0.04)  # log-uniform
    phase = np.sort(np.asarray(cell.phase))
    assert 0 <= phase[0] < 1e-3
    assert 0.9 * np.pi < phase[-1] <= np.pi
    np.testing.assert_allclose(np.median(phase), np.pi / 4, rtol=0.2)
    np.testing.assert_allclose(np.exp(2 * np.asarray(cell.log_gamma)) + radius**2, 1.0, atol=1e-5)
