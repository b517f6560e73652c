"""A gated recurrence with its gradient written by hand: what the GRU and the LSTM share.

A cell is its element-wise part, ``gates(x_projected, h_projected, state) -> state``; the projections of the inputs are
one matrix product before the scan. Automatic differentiation would add up the gradient of the recurrent weights inside
the backward scan, a small product every step; here the gradients of the projections are collected and multiplied once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from proximo.networks.memory.memory import select

State = Any
Gates = Callable[[Array, Array, State], State]
UNROLL = 8


def hidden(state: State) -> Float[Array, "N H"]:
    """The part of a state that is the output and is projected: the state itself, or the first of a tuple."""
    return state[0] if isinstance(state, tuple) else state


def _zeros_like(state: State) -> State:
    return jax.tree.map(jnp.zeros_like, state)


def advance(gates: Gates, x: Array, h_projected: Array, before: State, valid: Array) -> State:
    """The state after one row, given the state that the row reads (already reset)."""
    return select(valid, gates(x, h_projected, before), before)


def recur_step(gates: Gates, weight: Array, bias: Array, state: State, x: Array, first: Array, valid: Array) -> State:
    """One row: reset where ``first``, project, pass the gates."""
    before = select(first, _zeros_like(state), state)
    return advance(gates, x, hidden(before) @ weight + bias, before, valid)


def _forward(gates: Gates, weight: Array, bias: Array, state: State, x: Array, first: Array, valid: Array) -> tuple:
    def step(state: State, row: tuple[Array, Array, Array]) -> tuple[State, tuple[State, Array, Array]]:
        x_t, first_t, valid_t = row
        before = select(first_t, _zeros_like(state), state)
        h_projected = hidden(before) @ weight + bias
        state = advance(gates, x_t, h_projected, before, valid_t)
        return state, (before, h_projected, hidden(state))

    return jax.lax.scan(step, state, (x, first, valid), unroll=UNROLL)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def recur(
    gates: Gates,
    weight: Float[Array, "H G"],
    bias: Float[Array, " G"],
    state: State,
    x: Float[Array, "T N G"],
    first: Bool[Array, "T N"],
    valid: Bool[Array, "T N"],
) -> tuple[State, Float[Array, "T N H"]]:
    """Scan ``recur_step`` over time: the last state and the hidden part of every state."""
    state, (_, _, outputs) = _forward(gates, weight, bias, state, x, first, valid)
    return state, outputs


def _recur_forward(gates: Gates, weight: Array, bias: Array, state: State, x: Array, first: Array, valid: Array) -> tuple:
    state, (before, h_projected, outputs) = _forward(gates, weight, bias, state, x, first, valid)
    return (state, outputs), (weight, before, h_projected, x, first, valid)


def _recur_backward(gates: Gates, residuals: tuple, cotangents: tuple[State, Array]) -> tuple:
    weight, before, h_projected, x, first, valid = residuals
    d_last, d_outputs = cotangents

    def step(d_state: State, row: tuple) -> tuple[State, tuple[Array, Array]]:
        before_t, h_projected_t, x_t, first_t, valid_t, d_output = row
        _, pull_back = jax.vjp(lambda x, hp, s: advance(gates, x, hp, s, valid_t), x_t, h_projected_t, before_t)
        d_state = (d_state[0] + d_output, *d_state[1:]) if isinstance(d_state, tuple) else d_state + d_output
        d_x, d_projected, d_before = pull_back(d_state)
        d_hidden = d_projected @ weight.T
        d_before = (d_before[0] + d_hidden, *d_before[1:]) if isinstance(d_before, tuple) else d_before + d_hidden
        return select(first_t, _zeros_like(d_before), d_before), (d_x, d_projected)

    rows = (before, h_projected, x, first, valid, d_outputs)
    d_state, (d_x, d_projected) = jax.lax.scan(step, d_last, rows, reverse=True, unroll=UNROLL)
    d_weight = jnp.einsum("tnh,tng->hg", hidden(before), d_projected)
    return d_weight, d_projected.sum((0, 1)), d_state, d_x, None, None


recur.defvjp(_recur_forward, _recur_backward)
