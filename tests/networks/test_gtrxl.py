"""The Gated Transformer-XL attends to its window and to nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import NetworkConfig
from proximo.config.schema import MemorySettings
from proximo.networks.recurrent.gtrxl import GTrXL

from helpers import drawn

SIZE, WINDOW, STEPS = 8, 3, 9


def fresh(key, gate="gru", heads=2):
    config = NetworkConfig(memory_size=SIZE, memory_settings=MemorySettings(heads=heads, window=WINDOW, gate=gate))
    return GTrXL.create(key, SIZE, config)


def cell(gate="gru", heads=2):
    return drawn(lambda key: fresh(key, gate, heads))


def influence(episode_start=(), invalid=(), gate="gru"):
    """``reaches[t, k]``: whether the input of step k changes the output of step t."""
    layer = cell(gate)
    x = np.random.default_rng(1).normal(size=(STEPS, 1, SIZE)).astype(np.float32)
    firsts, valid = (jnp.asarray(np.isin(np.arange(STEPS), steps)[:, None]) for steps in (episode_start, invalid))

    def outputs(x):
        return layer.unroll(layer.init(1), x, firsts, ~valid)[1][:, 0]

    gradient = np.asarray(jax.jit(jax.jacobian(outputs))(x))[:, :, :, 0]
    return np.abs(gradient).max(axis=(1, 3)) > 1e-7


@pytest.mark.parametrize(("gate", "start"), [("gru", 0), ("identity", 0), ("gru", 4)])
def test_step_attends_to_itself_and_the_preceding_window_of_its_episode(gate, start):
    t, k = np.mgrid[:STEPS, :STEPS]
    expected = (k <= t) & (t - k <= WINDOW) & ((k >= start) == (t >= start))
    assert (influence(episode_start=[start], gate=gate) == expected).all()


def test_padding_steps_take_no_position():
    reaches = influence(invalid=[3, 4])
    assert reaches[6].tolist() == [False, True, True, False, False, True, True, False, False]


def test_attention_follows_transformer_xl():
    """One step after a window that is not full, by the formulas of Dai et al., section 3.3, head by head."""
    layer = cell(heads=2)
    state = layer.init(1)
    rng = np.random.default_rng(3)
    filled = rng.normal(size=(2, SIZE)).astype(np.float32)
    state = type(state)(state.inputs.at[0, 1:].set(filled), jnp.array([2], jnp.int32))
    x = rng.normal(size=(1, SIZE)).astype(np.float32)
    _, out = layer.step(state, jnp.asarray(x), jnp.array([False]), jnp.array([True]))

    def affine(linear, z):
        return z @ np.asarray(linear.weight) + np.asarray(linear.bias)

    def norm(z):
        z = z - z.mean(-1, keepdims=True)
        return z / np.sqrt((z**2).mean(-1, keepdims=True) + 1e-6)

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    def gate(g, x, y):
        r, z, h = np.split(affine(g.from_y, y), 3, -1)
        r2, z2 = np.split(affine(g.from_x, x), 2, -1)
        r, z = sigmoid(r + r2), sigmoid(z + z2)
        return (1 - z) * x + z * np.tanh(h + affine(g.candidate, r * x))

    inputs = np.concatenate([filled, x])
    query = affine(layer.query, norm(x)).reshape(2, -1)
    keys, values = (z.reshape(3, 2, -1) for z in np.split(affine(layer.key_value, norm(inputs)), 2, -1))
    angle = np.array([2, 1, 0])[:, None] / 10_000 ** (np.arange(4) / 4)
    waves = affine(layer.distance, np.concatenate([np.sin(angle), np.cos(angle)], 1)).reshape(3, 2, -1)
    u, v = np.asarray(layer.content_bias), np.asarray(layer.distance_bias)
    read = []
    for head in range(2):
        scores = (keys[:, head] @ (query[head] + u[head]) + waves[:, head] @ (query[head] + v[head])) / np.sqrt(SIZE // 2)
        weights = np.exp(scores - scores.max())
        read.append(weights / weights.sum() @ values[:, head])
    y = gate(layer.gates[0], x, np.maximum(affine(layer.merge, np.concatenate(read)[None]), 0))
    expected = gate(layer.gates[1], y, np.maximum(affine(layer.narrow, np.maximum(affine(layer.widen, norm(y)), 0)), 0))
    np.testing.assert_allclose(out, expected, atol=1e-5)
