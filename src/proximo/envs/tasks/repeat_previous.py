"""Repeat the symbol that was shown some steps ago: a test of memory alone."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from proximo.envs.libraries import Described, replace_params
from proximo.envs.tasks.boards import AMBER, GREEN, PALE, PAPER, RED, TINTS, board
from proximo.errors import ConfigError
from proximo.spaces import Discrete


class RepeatPreviousParams(eqx.Module):
    """Parameters of ``RepeatPrevious``."""

    lag: int = eqx.field(default=4, static=True)
    """How many observations before the current one the symbol was shown, 1 or more."""
    symbols: int = eqx.field(default=4, static=True)
    """Number of symbols, 2 or more."""
    max_steps: Int[Array, ""] | int = 64
    """Steps of an episode, the first ``lag`` included."""


class RepeatPreviousState(NamedTuple):
    """``shown`` has the last ``lag + 2`` symbols: the target of the last step, the next target, …, the newest."""

    shown: Int[Array, " lag_and_two"]
    time: Int[Array, ""]
    answer: Int[Array, ""]
    """Action of the last step; -1 before the first step."""
    right: Int[Array, ""]
    """Number of correct answers so far."""


class RepeatPrevious(Described):
    """Each observation is a symbol, drawn uniformly and independently. The action names the symbol of ``lag`` observations before.

    Observation and action: Discrete(symbols). The first ``lag`` steps give no reward. Each correct answer after them gives
    1 / (max_steps - lag), so the return is the share of correct answers: at most 1, and 1 / symbols without memory. Episodes are
    truncated after ``max_steps``. ``info["success"]`` is True if all answers were correct. The idea is POPGym's (Morad et al. 2023,
    arXiv:2303.01859), which shows a shuffled deck.
    """

    render_fps = 2

    def __init__(self, settings: dict[str, Any] | None = None):
        self.default_params = replace_params(RepeatPreviousParams(), settings or {}, "proximo:RepeatPrevious")
        params = self.default_params
        if params.lag < 1 or params.symbols < 2 or int(params.max_steps) <= params.lag:
            raise ConfigError(
                f"env_settings: lag = {params.lag}, symbols = {params.symbols}, max_steps = {params.max_steps}: expected a lag of 1 or "
                "more, at least 2 symbols, and max_steps larger than the lag."
            )
        self.observation_space = self.action_space = Discrete(params.symbols)

    def reset(self, key: Key[Array, ""], params: RepeatPreviousParams) -> tuple[RepeatPreviousState, Int[Array, ""]]:
        symbol = jax.random.randint(key, (), 0, params.symbols)
        shown = jnp.zeros(params.lag + 2, jnp.int32).at[-1].set(symbol)
        return RepeatPreviousState(shown, jnp.int32(0), jnp.int32(-1), jnp.int32(0)), symbol

    def step(self, key: Key[Array, ""], state: RepeatPreviousState, action: Array, params: RepeatPreviousParams) -> tuple:
        right = (state.time >= params.lag) & (action == state.shown[1])
        questions = params.max_steps - params.lag
        symbol = jax.random.randint(key, (), 0, params.symbols)
        shown = jnp.append(state.shown[1:], symbol)
        state = RepeatPreviousState(shown, state.time + 1, action.astype(jnp.int32), state.right + right)
        truncated = state.time >= params.max_steps
        success = truncated & (state.right == questions)
        return state, symbol, jnp.where(right, 1.0 / questions, 0.0), jnp.array(False), truncated, {"success": success}

    def render(self, state: RepeatPreviousState, params: RepeatPreviousParams) -> np.ndarray:
        """Draw the last symbols, oldest first, a mark below the next target, the last answer, green if it was right."""
        lag, time = int(params.lag), int(state.time)
        cells = np.full((7, lag + 2, 3), PAPER)
        for i in range(max(0, lag + 1 - time), lag + 2):  # there is no symbol before the first
            cells[1, i] = TINTS[int(state.shown[i]) % len(TINTS)]
        cells[2, 1] = AMBER if time >= lag else PAPER
        cells[4, 0] = TINTS[int(state.answer) % len(TINTS)] if time else PALE
        cells[4, 1:] = PALE if time <= lag else GREEN if state.answer == state.shown[0] else RED
        return board(cells.repeat(max(1, (lag + 2) // 7), axis=0))
