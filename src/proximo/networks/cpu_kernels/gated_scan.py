"""The scan of gated cells (GRU, LSTM), with its gradient written by hand.

``gates(x_projected, h_projected, state) -> state`` of a cell is element-wise: each unit of the new state
depends on the same unit of the arguments only. So the derivatives of all steps are computed at once before
the backward scan, and the gradient of the recurrent weights is one product after it (decision 0003).
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from proximo.types import select

State = Any
Gates = Callable[[Array, Array, State], State]

BACKWARD_UNROLL = 2
"""Steps in one iteration of the backward scan. Forwards, XLA would compute earlier states again for later steps."""


def hidden(state: State) -> Float[Array, "*batch H"]:
    """The part of a state that is projected and is the output: the state itself, or the first of a tuple."""
    return state[0] if isinstance(state, tuple) else state


def _add_hidden(state: State, h: Array) -> State:
    return (state[0] + h, *state[1:]) if isinstance(state, tuple) else state + h


def _zeroed(where: Array, state: State) -> State:
    return select(where, jax.tree.map(jnp.zeros_like, state), state)


def recur_step(
    gates: Gates, weight: Array, bias: Array, state: State, x: Array, episode_start: Array, valid: Array
) -> tuple[State, Array]:
    """One step: the state after it, and the projected hidden state ``[N, G]`` before it."""
    state = _zeroed(episode_start, state)
    h_projected = hidden(state) @ weight + bias
    return select(valid, gates(x, h_projected, state), state), h_projected


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def recur(
    gates: Gates, added: int, weight: Array, bias: Array, state: State, x: Float[Array, "T N G"], *flags: Bool[Array, "T N"]
) -> tuple[State, Float[Array, "T N H"]]:
    """Scan ``recur_step`` over the projected inputs ``x``: the last state, and the hidden part of all states.
    ``gates`` reads the first ``added`` columns of both projections as their sum only: they have one
    gradient."""
    return _forward(gates, added, weight, bias, state, x, *flags)[0]


def _forward(gates: Gates, added: int, weight: Array, bias: Array, state: State, *steps: Array) -> tuple:
    def step(state, inputs):
        state, h_projected = recur_step(gates, weight, bias, state, *inputs)
        return state, (state, h_projected)

    last, (states, h_projected) = jax.lax.scan(step, state, steps)
    return (last, hidden(states)), (weight, state, states, h_projected, *steps)


def _backward(gates: Gates, added: int, residuals: tuple, cotangents: tuple[State, Array]) -> tuple:
    weight, state, states, h_projected, x, episode_start, valid = residuals
    d_last, d_outputs = cotangents
    previous = jax.tree.map(lambda s, all: jnp.concatenate([s[None], all[:-1]]), state, states)
    read = _zeroed(episode_start, previous)

    # The gates are element-wise: the derivatives of each unit, of all steps at once, are the gradients of ones.
    _, pull_back = jax.vjp(lambda x, hp, s: select(valid, gates(x, hp, s), s), x, h_projected, read)
    parts, structure = jax.tree.flatten(states)
    units = [[jnp.ones_like(p) if i == j else jnp.zeros_like(p) for j, p in enumerate(parts)] for i in range(len(parts))]
    by_x, by_h, by_state = zip(*(pull_back(structure.unflatten(unit)) for unit in units), strict=True)

    def times(d_state, derivatives):
        """``Σ_i d_state_i · derivative_i``, with the state repeated for each gate."""
        d_parts = jax.tree.leaves(d_state)
        repeat = derivatives[0].shape[-1] // d_parts[0].shape[-1]
        parts = zip(d_parts, derivatives, strict=True)
        return reduce(jnp.add, (jnp.concatenate([d] * repeat, axis=-1) * derivative for d, derivative in parts))

    transposed = weight.T  # once, before the scan: a product with a transposed view takes 1.5 times as long

    def step(d_state, inputs):
        by_h_t, by_state_t, start_t, d_output = inputs
        d_state = _add_hidden(d_state, d_output)
        d_projected = times(d_state, by_h_t)
        d_read = jax.tree.map(lambda *derivatives: times(d_state, derivatives), *by_state_t)
        return _zeroed(start_t, _add_hidden(d_read, d_projected @ transposed)), (d_state, d_projected)

    inputs = by_h, by_state, episode_start, d_outputs
    d_state, (d_states, d_projected) = jax.lax.scan(step, d_last, inputs, reverse=True, unroll=BACKWARD_UNROLL)
    d_x = d_projected
    if added < d_x.shape[-1]:
        d_x = jnp.concatenate([d_x[..., :added], times(d_states, tuple(d[..., added:] for d in by_x))], axis=-1)
    d_projected = d_projected.reshape((-1, weight.shape[1]))
    # The barrier keeps the transposed copy, which XLA would fold back into the product.
    read_transposed = jax.lax.optimization_barrier(hidden(read).reshape((-1, weight.shape[0])).T)
    return read_transposed @ d_projected, d_projected.sum(0), d_state, d_x, None, None


recur.defvjp(_forward, _backward)
