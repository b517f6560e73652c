"""The hand-written gradients of the recurrences equal automatic differentiation of a plain scan."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import NetworkConfig
from proximo.config.schema import MemorySettings
from proximo.networks.recurrent import CELLS
from proximo.networks.recurrent.gated_cell import GatedCell
from proximo.networks.recurrent.protocol import MemoryCell

from helpers import difference, shaken

ENVS, FEATURES, SIZE = 3, 4, 5
STEPS = {"lstm": 5, "lru": 5}
"""Fewer than the 11 steps of the other cells, which are more than the steps in one iteration of the scan."""
RECURRENT = [name for name in CELLS if name != "gtrxl"]
GATED = [name for name, cell in CELLS.items() if issubclass(cell, GatedCell)]


def create(name, seed=0, **settings):
    return CELLS[name].create(jax.random.key(seed), FEATURES, NetworkConfig(**{"memory_size": SIZE, **settings}))


def gradients(unroll, cell, state, x, episode_start, valid):
    weight = jnp.asarray(np.random.default_rng(5).normal(size=(*episode_start.shape, SIZE)), jnp.float32)

    def objective(cell, state, x):
        last, outputs = unroll(cell, state, x, episode_start, valid)
        return jnp.sum(weight * jnp.sin(outputs)) + sum(jnp.sum(jnp.cos(leaf)) for leaf in jax.tree.leaves(last))

    return jax.grad(objective, argnums=(0, 1, 2))(cell, state, x)


@functools.cache
def errors(name):
    rng = np.random.default_rng(4)
    cell = shaken(create(name))
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


@pytest.mark.parametrize("cell", RECURRENT)
def test_hand_written_gradient_equals_automatic_differentiation(cell):
    assert errors(cell)["unchanged"] < 1e-5
    assert min(error for name, error in errors(cell).items() if name != "unchanged") > 1e-2


def test_only_gates_that_read_a_sum_may_be_added(monkeypatch):
    """The candidate of the GRU is not one; to add none is always correct."""
    monkeypatch.setattr(CELLS["gru"], "added_gates", 3)
    assert errors.__wrapped__("gru")["unchanged"] > 1e-2
    monkeypatch.setattr(CELLS["lstm"], "added_gates", 0)
    assert errors.__wrapped__("lstm")["unchanged"] < 1e-5


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def one_step(name):
    """The state before, the projected inputs and hidden state, the state after, and the output."""
    cell, rng = shaken(create(name, seed=1)), np.random.default_rng(6)
    x = rng.normal(size=(ENVS, FEATURES)).astype(np.float32)
    state = jax.tree.map(lambda m: rng.normal(size=m.shape).astype(np.float32), cell.init(ENVS))
    after, output = jax.jit(lambda *row: cell.step(*row))(state, x, jnp.zeros(ENVS, bool), jnp.ones(ENVS, bool))
    h = state[0] if isinstance(state, tuple) else state
    projected = [z @ np.asarray(layer.weight) + np.asarray(layer.bias) for z, layer in ((x, cell.input), (h, cell.recurrent))]
    return state, *projected, after, output


def test_gru_follows_cho_et_al():
    h, from_x, from_h, after, output = one_step("gru")
    (reset_x, update_x, candidate_x), (reset_h, update_h, candidate_h) = (np.split(z, 3, -1) for z in (from_x, from_h))
    update = sigmoid(update_x + update_h)
    expected = (1 - update) * np.tanh(candidate_x + sigmoid(reset_x + reset_h) * candidate_h) + update * h
    np.testing.assert_allclose(after, expected, atol=1e-6)
    assert jnp.array_equal(after, output)


def test_lstm_follows_hochreiter_with_an_open_forget_gate():
    (_, c), from_x, from_h, after, output = one_step("lstm")
    into, forget, out, candidate = np.split(from_x + from_h, 4, -1)
    cell = sigmoid(forget + 1.0) * c + sigmoid(into) * np.tanh(candidate)
    np.testing.assert_allclose(after[1], cell, atol=1e-6)
    np.testing.assert_allclose(output, sigmoid(out) * np.tanh(cell), atol=1e-6)
    assert jnp.array_equal(after[0], output)


@pytest.mark.parametrize("name", GATED)
def test_initial_states_last_for_two_to_horizon_steps(name):
    units, horizon = 256, 40
    cell = create(name, memory_size=units, memory_settings=MemorySettings(horizon=horizon))
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
