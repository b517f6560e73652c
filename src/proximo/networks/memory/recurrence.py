"""A gated recurrence with its gradient written by hand: what the GRU and the LSTM share.

A cell is its element-wise part, ``gates(x_projected, h_projected, state) -> state``: what a unit becomes depends on the
same unit of its arguments only (for every gate). The projections of the inputs are one matrix product before the scan.
Automatic differentiation would evaluate the gates' gradient, and add up the gradient of the recurrent weights, inside the
backward scan: small operations every step. Here all rows' derivatives are taken at once before it, and the gradients of
the projections are multiplied once after it (docs/decisions/0003-speed-on-the-cpu.md has the measurements).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from proximo.networks.memory.memory import select

State = Any
Gates = Callable[[Array, Array, State], State]


def hidden(state: State) -> Float[Array, "*rows H"]:
    """The part of a state that is the output and is projected: the state itself, or the first of a tuple."""
    return state[0] if isinstance(state, tuple) else state


def _add_hidden(state: State, h: Float[Array, "*rows H"]) -> State:
    return (state[0] + h, *state[1:]) if isinstance(state, tuple) else state + h


def _zeros_like(state: State) -> State:
    return jax.tree.map(jnp.zeros_like, state)


def _unroll(state: State) -> int:
    """Rows in one iteration of the scan: XLA goes through the chain of states within an iteration anew for each of its rows, so
    that the two of an LSTM pay for fewer (docs/decisions/0003-speed-on-the-cpu.md)."""
    return 4 // len(jax.tree.leaves(state))


def advance(gates: Gates, x: Array, h_projected: Array, before: State, valid: Array) -> State:
    """The state after one row, given the state that the row reads (already reset)."""
    return select(valid, gates(x, h_projected, before), before)


def recur_step(gates: Gates, weight: Array, bias: Array, state: State, x: Array, first: Array, valid: Array) -> State:
    """One row: reset where ``first``, project, pass the gates."""
    before = select(first, _zeros_like(state), state)
    return advance(gates, x, hidden(before) @ weight + bias, before, valid)


def _forward(gates: Gates, weight: Array, bias: Array, state: State, x: Array, first: Array, valid: Array) -> tuple:
    """The last state; the states after all rows; the hidden parts projected."""

    def step(state: State, row: tuple[Array, Array, Array]) -> tuple[State, tuple[State, Array]]:
        x_t, first_t, valid_t = row
        before = select(first_t, _zeros_like(state), state)
        h_projected = hidden(before) @ weight + bias
        state = advance(gates, x_t, h_projected, before, valid_t)
        return state, (state, h_projected)

    last, (states, h_projected) = jax.lax.scan(step, state, (x, first, valid), unroll=_unroll(state))
    return last, states, h_projected


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
    last, states, _ = _forward(gates, weight, bias, state, x, first, valid)
    return last, hidden(states)


def _recur_forward(gates: Gates, weight: Array, bias: Array, state: State, x: Array, first: Array, valid: Array) -> tuple:
    last, states, h_projected = _forward(gates, weight, bias, state, x, first, valid)
    return (last, hidden(states)), (weight, state, states, h_projected, x, first, valid)


def _recur_backward(gates: Gates, residuals: tuple, cotangents: tuple[State, Array]) -> tuple:
    weight, state, states, h_projected, x, first, valid = residuals
    d_last, d_outputs = cotangents
    previous = jax.tree.map(lambda s, all: jnp.concatenate([s[None], all[:-1]]), state, states)
    before = select(first, _zeros_like(previous), previous)

    # The gates are element-wise: each unit's derivatives, at all rows at once, are the gradients of ones.
    _, pull_back = jax.vjp(lambda x, hp, s: advance(gates, x, hp, s, valid), x, h_projected, before)
    parts, structure = jax.tree.flatten(states)
    units = [[jnp.ones_like(p) if i == j else jnp.zeros_like(p) for j, p in enumerate(parts)] for i in range(len(parts))]
    by_x, by_h, by_state = zip(*(pull_back(structure.unflatten(unit)) for unit in units), strict=True)

    def times(d_state: State, derivatives: tuple[Array, ...]) -> Array:
        """``Σ_i d_state_i · derivative_i``, the state repeated for each gate."""
        d_parts = jax.tree.leaves(d_state)
        repeat = derivatives[0].shape[-1] // d_parts[0].shape[-1]
        parts = zip(d_parts, derivatives, strict=True)
        return reduce(jnp.add, (jnp.concatenate([d] * repeat, axis=-1) * derivative for d, derivative in parts))

    transposed = weight.T  # once, before the scan: a product with a transposed matrix takes 1.5 times as long

    def step(d_state: State, row: tuple) -> tuple[State, State]:
        by_h_t, by_state_t, first_t, d_output = row
        d_state = _add_hidden(d_state, d_output)
        d_before = jax.tree.map(lambda *derivatives: times(d_state, derivatives), *by_state_t)
        d_before = _add_hidden(d_before, times(d_state, by_h_t) @ transposed)
        return select(first_t, _zeros_like(d_before), d_before), d_state

    d_state, d_states = jax.lax.scan(step, d_last, (by_h, by_state, first, d_outputs), reverse=True, unroll=_unroll(state))
    d_projected = times(d_states, by_h).reshape((-1, weight.shape[1]))
    before_transposed = jax.lax.optimization_barrier(
        hidden(before).reshape((-1, weight.shape[0])).T
    )  # a copy: else it is folded back
    return before_transposed @ d_projected, d_projected.sum(0), d_state, times(d_states, by_x), None, None


recur.defvjp(_recur_forward, _recur_backward)
