"""``pgx:connect_four``: two-player games of pgx, as environments of one agent whose opponent replies in ``step``."""

import io
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from proximo.envs.libraries import Described, check_names, load
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import ConfigError, lacking
from proximo.spaces import ACTION_MASK, OBSERVATION, Box, Dict, Discrete, MultiBinary

SIDES = ("both", "first", "second")


def names() -> list[str]:
    """Return the two-player games."""
    return [
        "animal_shogi", "backgammon", "chess", "connect_four", "gardner_chess", "go_9x9", "go_19x19", "hex", "kuhn_poker", "leduc_holdem",
        "othello", "shogi", "tic_tac_toe",
    ]  # fmt: skip


def from_name(name: str, settings: dict[str, Any]) -> "Game":
    """Make a game. Its only setting is ``side``: the agent plays ``first``, ``second`` or, with ``both``, a random side in each game."""
    env_id = f"pgx:{name}"
    check_names(settings, ["side"], env_id)
    if (side := settings.get("side", "both")) not in SIDES:
        raise ConfigError(f"env_settings: side = {side!r}: expected one of {', '.join(SIDES)}.")
    return Game(load(env_id).make(name), side)


class RandomPlayer(NamedTuple):
    """Chooses among the legal moves with equal probabilities. Every player is a pytree with these two methods."""

    def init_memory(self) -> Any:
        """Return the memory before the first move."""
        return ()

    def move(self, memory: Any, observation: dict[str, jax.Array], key: jax.Array) -> tuple[Any, jax.Array]:
        """Return the memory after the move, and the move."""
        return memory, jax.random.categorical(key, jnp.where(observation[ACTION_MASK], 0.0, -jnp.inf))


class GameState(NamedTuple):
    """The state of pgx's game, the number of the agent among its players (0 or 1), and the memory of the opponent."""

    game: Any
    player: jax.Array
    memory: Any


class Game(Described, JaxEnvironment):
    """A game in which the agent is one of the players. Its parameters are the opponent, which moves in ``reset`` and ``step`` until it is
    the agent's turn. A transition thus reaches from a move of the agent to its next move, or to the end of the game."""

    render_fps = 1
    has_opponent = True

    def __init__(self, game: Any, side: str):
        self.game, self.side, self.default_params = game, side, RandomPlayer()
        state = jax.eval_shape(game.init, jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0))))
        mask = MultiBinary(state.legal_action_mask.shape)
        self.observation_space = Dict({OBSERVATION: Box(state.observation.shape), ACTION_MASK: mask})
        self.action_space = Discrete(mask.size)

    def reset(self, key, params):
        key_game, key_replies = jax.random.split(key)
        game = self.game.init(jax.random.key_data(key_game))  # which chooses at random who begins
        beginner = game.current_player
        player = {"both": jnp.zeros_like(beginner), "first": beginner, "second": 1 - beginner}[self.side]
        state, _ = self._replies(GameState(game, player, params.init_memory()), key_replies, params)
        return state, self._seen(state.game, player)

    def step(self, key, state, action, params):
        key_own, key_replies = jax.random.split(key)
        state = state._replace(game=self.game.step(state.game, action, jax.random.key_data(key_own)))
        gained = state.game.rewards[state.player]
        state, more = self._replies(state, key_replies, params)
        gained, ended, truncated = gained + more, state.game.terminated, state.game.truncated
        return state, self._seen(state.game, state.player), gained, ended, truncated & ~ended, {"success": gained > 0}

    def _replies(self, state: GameState, key: jax.Array, params: Any) -> tuple[GameState, jax.Array]:
        """Make the opponent's moves until it is the agent's turn or the game ends. Return the new state and the agent's rewards, summed."""

        def is_opponents_turn(now: tuple[GameState, jax.Array, jax.Array]) -> jax.Array:
            game, player, _ = now[0]
            return (game.current_player != player) & ~game.terminated & ~game.truncated

        def reply(now: tuple[GameState, jax.Array, jax.Array]) -> tuple[GameState, jax.Array, jax.Array]:
            (game, player, memory), gained, key = now
            key, key_move, key_game = jax.random.split(key, 3)
            memory, move = params.move(memory, self._seen(game, 1 - player), key_move)
            game = self.game.step(game, move, jax.random.key_data(key_game))
            return GameState(game, player, memory), gained + game.rewards[player], key

        state, gained, _ = jax.lax.while_loop(is_opponents_turn, reply, (state, jnp.zeros_like(state.game.rewards[0]), key))
        return state, gained

    def _seen(self, game: Any, player: jax.Array) -> dict[str, jax.Array]:
        """Return the observation of ``player``, with the legal moves of the player whose turn it is."""
        seen = self.game._observe(game, player)  # the public method warns of its argument
        return {OBSERVATION: seen.astype(jnp.float32), ACTION_MASK: game.legal_action_mask}

    def render(self, state: GameState, params: Any) -> np.ndarray:
        """Draw pgx's own picture."""
        try:
            from resvg_py import svg_to_bytes
        except ModuleNotFoundError as error:
            raise lacking("The picture of a game", "pgx") from error
        from PIL import Image

        return np.array(Image.open(io.BytesIO(svg_to_bytes(svg_string=state.game.to_svg()))).convert("RGB"))
