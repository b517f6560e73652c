"""``ale:pong``: the Arcade Learning Environment's own vectorised environment, threads of C++ with Atari's standard chain."""

from __future__ import annotations

import inspect
from typing import Any

from proximo.envs.host.environment import HostEnvironment
from proximo.envs.host.gymnasium import from_vector
from proximo.envs.host.preprocessing import Preprocessing
from proximo.envs.settings import hold_names
from proximo.errors import EnvError, lacking, nearest
from proximo.users_code import users_code

# Frames: four a step with the maximum of the last two, four stacked, 84×84, gray, up to 30 no-ops are its own defaults.
# The raw reward is what is reported; clip_reward clips it for the learner.
FIXED = ("game", "num_envs", "batch_size", "autoreset_mode", "reward_clipping", "episodic_life", "life_loss_info")


def from_game(game: str, settings: dict[str, Any], preprocessing: Preprocessing) -> HostEnvironment:
    """The game of that name, as ALE spells it (``pong``, ``space_invaders``); ``settings`` are parameters of
    ``AtariVectorEnv``. Raises ``EnvError`` where ale-py is not installed or has no such game."""
    env_id = f"ale:{game}"
    try:
        from ale_py import ALEInterface, LoggerMode, roms
        from ale_py.vector_env import AtariVectorEnv
    except ImportError:
        raise lacking(env_id, "atari") from None
    games = roms.get_all_rom_ids()
    if game not in games:
        raise EnvError(f"ALE has no game {game!r}{nearest(game, games)}; `proximo envs ale` lists them.")
    known = [name for name in inspect.signature(AtariVectorEnv).parameters if name not in FIXED]
    hold_names(settings, known, env_id)

    ALEInterface.setLoggerMode(LoggerMode.Error)  # its banner, else, with every pool

    def make_vector(num_envs: int) -> Any:
        return AtariVectorEnv(game, num_envs, autoreset_mode="SameStep", reward_clipping=False, **settings)

    with users_code(f"Making {env_id}"):
        return from_vector(make_vector, env_id, preprocessing, may_mask=False)


def names() -> list[str]:
    """All games; none where ale-py is not installed."""
    try:
        from ale_py import roms
    except ImportError:
        return []
    return sorted(roms.get_all_rom_ids())
