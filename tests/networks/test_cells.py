"""One step of each cell against the formulas of its paper, how cells start, and what the GTrXL attends to."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import NetworkConfig
from proximo.config.schema import MemorySettings
from proximo.networks.recurrent import CELLS
from proximo.networks.recurrent.gated_cell import GatedCell

from helpers import drawn

ENVS, FEATURES, SIZE, WINDOW, STEPS = 3, 4, 8, 3, 9


def make(name, key, size=SIZE, in_size=FEATURES, **settings):
    return CELLS[name].create(key, in_size, NetworkConfig(memory_size=size, memory_settings=MemorySettings(**settings)))


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def affine(layer, x):
    return x @ np.asarray(layer.weight) + np.asarray(layer.bias)


def one_step(name):
    """The cell; the input; the state before, as a list; the state after, as a list; and the output."""
    cell, rng = drawn(lambda key: make(name, key)), np.random.default_rng(6)
    x = rng.normal(size=(ENVS, FEATURES)).astype(np.float32)
    state = jax.tree.map(lambda m: rng.normal(size=m.shape).astype(np.float32), cell.init(ENVS))
    after, output = jax.jit(lambda *row: cell.step(*row))(state, x, jnp.zeros(ENVS, bool), jnp.ones(ENVS, bool))
    return cell, x, jax.tree.leaves(state), [np.asarray(leaf) for leaf in jax.tree.leaves(after)], np.asarray(output)


def test_gru_follows_cho_et_al():
    cell, x, [h], [after], output = one_step("gru")
    (reset_x, update_x, candidate_x), (reset_h, update_h, candidate_h) = (
        np.split(z, 3, -1) for z in (affine(cell.input, x), affine(cell.recurrent, h))
    )
    update = sigmoid(update_x + update_h)
    expected = (1 - update) * np.tanh(candidate_x + sigmoid(reset_x + reset_h) * candidate_h) + update * h
    np.testing.assert_allclose(after, expected, atol=1e-6)
    assert np.array_equal(after, output)


def test_lstm_follows_hochreiter_with_an_open_forget_gate():
    cell, x, [h, c], after, output = one_step("lstm")
    into, forget, out, candidate = np.split(affine(cell.input, x) + affine(cell.recurrent, h), 4, -1)
    expected = sigmoid(forget + 1.0) * c + sigmoid(into) * np.tanh(candidate)
    np.testing.assert_allclose(after[1], expected, atol=1e-6)
    np.testing.assert_allclose(output, sigmoid(out) * np.tanh(expected), atol=1e-6)
    assert np.array_equal(after[0], output)


def block(cell, x):
    """``u``, ``norm(u)`` and the output of a linear recurrence, a function of what is read."""
    u = affine(cell.input, x)

    def output(read):
        value, gate = np.split(affine(cell.output, read), 2, -1)
        return u + value * sigmoid(gate)

    return u / np.sqrt((u**2).mean(-1, keepdims=True) + 1e-6), output


def test_mingru_follows_feng_et_al():
    cell, x, [h], [after], output = one_step("mingru")
    v, expected_output = block(cell, x)
    z = sigmoid(affine(cell.gate, v))
    expected = (1 - z) * h + z * affine(cell.candidate, v)
    np.testing.assert_allclose(after, expected, atol=1e-5)
    np.testing.assert_allclose(output, expected_output(expected), atol=1e-5)


def test_lru_follows_orvieto_et_al():
    cell, x, [state], [after], output = one_step("lru")
    v, expected_output = block(cell, x)
    eigenvalue = np.exp(-np.exp(np.asarray(cell.log_decay)) + 1j * np.asarray(cell.phase))
    written = affine(cell.write, v)
    drive = (written[:, :SIZE] + 1j * written[:, SIZE:]) * np.exp(np.asarray(cell.log_gamma))
    h = eigenvalue * (state[:, :SIZE] + 1j * state[:, SIZE:]) + drive
    packed = np.concatenate([h.real, h.imag], -1)
    np.testing.assert_allclose(after, packed, atol=1e-5)
    np.testing.assert_allclose(output, expected_output(affine(cell.reader, packed) + np.asarray(cell.skip) * v), atol=1e-5)


@pytest.mark.parametrize("name", [name for name, cell in CELLS.items() if issubclass(cell, GatedCell)])
def test_initial_states_last_for_two_to_horizon_steps(name):
    units, horizon = 256, 40
    cell = make(name, jax.random.key(0), units, horizon=horizon)
    ones, flags = jax.tree.map(jnp.ones_like, cell.init(1)), (jnp.zeros(1, bool), jnp.ones(1, bool))
    silent = eqx.tree_at(lambda c: c.recurrent.weight, cell, jnp.zeros_like(cell.recurrent.weight))
    after, _ = silent.step(ones, jnp.zeros((1, FEATURES)), *flags)
    kept = np.asarray(jax.tree.leaves(after)[-1])[0]  # the GRU's state, the LSTM's cell: nothing enters from silent inputs
    lasting = 1 / (1 - kept)
    assert 2 <= lasting.min() < 4
    assert 38 < lasting.max() <= horizon + 1e-3
    assert abs(lasting.mean() - 21) < 2  # uniform
    loud = eqx.tree_at(lambda c: c.input.weight, silent, jnp.zeros_like(cell.input.weight).at[:, -units:].set(50.0))
    after, _ = loud.step(ones, jnp.ones((1, FEATURES)), *flags)
    np.testing.assert_allclose(jax.tree.leaves(after)[-1][0], 1.0, atol=1e-5)  # as much enters as is lost


def test_an_lru_starts_with_all_horizons_small_phases_and_drives_of_unit_variance():
    cell = make("lru", jax.random.key(0), size=1024)
    radius = np.exp(-np.exp(np.asarray(cell.log_decay)))
    horizon, phase = np.sort(1 / (1 - radius)), np.sort(np.asarray(cell.phase))
    assert 2 <= horizon[0] < 2.5
    assert 800 < horizon[-1] <= 1001
    quantiles = np.quantile(np.log(horizon / 2) / np.log(500), [0.1, 0.5, 0.9])
    np.testing.assert_allclose(quantiles, [0.1, 0.5, 0.9], atol=0.04)  # log-uniform
    assert 0 <= phase[0] < 1e-3
    assert 0.9 * np.pi < phase[-1] <= np.pi
    np.testing.assert_allclose(np.median(phase), np.pi / 4, rtol=0.2)
    np.testing.assert_allclose(np.exp(2 * np.asarray(cell.log_gamma)) + radius**2, 1.0, atol=1e-5)


def gtrxl(gate="gru"):
    return drawn(lambda key: make("gtrxl", key, in_size=SIZE, heads=2, window=WINDOW, gate=gate))


def influence(episode_start=(), invalid=(), gate="gru"):
    """``reaches[t, k]``: whether the input of step k changes the output of step t."""
    layer, x = gtrxl(gate), np.random.default_rng(1).normal(size=(STEPS, 1, SIZE)).astype(np.float32)
    starts, invalid = (jnp.asarray(np.isin(np.arange(STEPS), steps)[:, None]) for steps in (episode_start, invalid))
    outputs = jax.jit(jax.jacobian(lambda x: layer.unroll(layer.init(1), x, starts, ~invalid)[1][:, 0]))
    return np.abs(np.asarray(outputs(x))[:, :, :, 0]).max(axis=(1, 3)) > 1e-7


@pytest.mark.parametrize(("gate", "start"), [("gru", 0), ("identity", 0), ("gru", 4)])
def test_step_attends_to_itself_and_the_preceding_window_of_its_episode(gate, start):
    t, k = np.mgrid[:STEPS, :STEPS]
    expected = (k <= t) & (t - k <= WINDOW) & ((k >= start) == (t >= start))
    assert (influence(episode_start=[start], gate=gate) == expected).all()


def test_padding_steps_take_no_position():
    assert np.flatnonzero(influence(invalid=[3, 4])[6]).tolist() == [1, 2, 5, 6]


def test_attention_follows_transformer_xl():
    """One step after a window that is not full, by the formulas of Dai et al., section 3.3, head by head."""
    layer, rng = gtrxl(), np.random.default_rng(3)
    filled, x = rng.normal(size=(2, SIZE)).astype(np.float32), rng.normal(size=(1, SIZE)).astype(np.float32)
    state = layer.init(1)
    state = type(state)(state.inputs.at[0, 1:].set(filled), jnp.array([2], jnp.int32))
    _, out = layer.step(state, jnp.asarray(x), jnp.array([False]), jnp.array([True]))

    def norm(z):
        z = z - z.mean(-1, keepdims=True)
        return z / np.sqrt((z**2).mean(-1, keepdims=True) + 1e-6)

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
