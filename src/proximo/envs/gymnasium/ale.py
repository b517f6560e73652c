"""``ale:pong``: the vector environment of the Arcade Learning Environment, which steps games in C++ threads.

Its default preprocessing is the standard one: 84×84 gray images, 4 frames a step with the maximum of the last two, 4 stacked frames, and
up to 30 no-ops.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from proximo.custom_code import custom_code_errors
from proximo.envs.env_settings import check_names
from proximo.envs.gymnasium.construction import AUTO_THREADS, from_vector
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.libraries import check_known, not_installed

# proximo clips rewards for the learner only (clip_reward); reported returns are raw.
RESERVED = ("game", "num_envs", "batch_size", "autoreset_mode", "reward_clipping", "episodic_life", "life_loss_info")


def from_name(name: str, settings: dict[str, Any], preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """Make a game by its name in ALE (``pong``, ``space_invaders``); ``settings`` are arguments of ``AtariVectorEnv``."""
    env_id = f"ale:{name}"
    try:
        from ale_py import ALEInterface, LoggerMode, roms
        from ale_py.vector_env import AtariVectorEnv
    except ImportError:
        raise not_installed(env_id) from None
    check_known(env_id, roms.get_all_rom_ids())
    known = [key for key in inspect.signature(AtariVectorEnv).parameters if key not in RESERVED]
    check_names(settings, known, env_id)

    ALEInterface.setLoggerMode(LoggerMode.Error)  # else it prints a banner for each vector environment

    def make(num_threads: int, num_envs: int) -> Any:
        given = {"num_threads": num_threads, **settings}
        return AtariVectorEnv(name, num_envs, autoreset_mode="SameStep", reward_clipping=False, **given)

    with custom_code_errors(f"Making {env_id}"):
        return from_vector(partial(make, AUTO_THREADS), env_id, preprocessing, may_mask=False, make_threaded=make)


def names() -> list[str]:
    """Return all games; empty if ale-py is not installed."""
    try:
        from ale_py import roms
    except ImportError:
        return []
    return sorted(roms.get_all_rom_ids())
