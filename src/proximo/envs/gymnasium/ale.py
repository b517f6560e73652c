"""``ale:pong``: the vector environment of the Arcade Learning Environment, which steps games in C++ threads.

Its default preprocessing is the standard one: 84×84 gray images, 4 frames a step with the maximum of the last two, 4 stacked frames, and
up to 30 no-ops.
"""

import inspect
from typing import Any

from proximo.envs.gymnasium.environment import GymnasiumEnvironment, from_vector
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.libraries import check_names, load

# proximo clips rewards for the learner only (clip_reward); reported returns are raw.
RESERVED = ("game", "num_envs", "batch_size", "autoreset_mode", "reward_clipping", "episodic_life", "life_loss_info")


def names() -> list[str]:
    """Return all games."""
    return sorted(load("ale", ".roms").get_all_rom_ids())


def from_name(name: str, settings: dict[str, Any], preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """Make a game by its name in ALE (``pong``, ``space_invaders``); ``settings`` are arguments of ``AtariVectorEnv``."""
    env_id = f"ale:{name}"
    library, vectors = load(env_id), load(env_id, ".vector_env").AtariVectorEnv
    check_names(settings, [key for key in inspect.signature(vectors).parameters if key not in RESERVED], env_id)
    library.ALEInterface.setLoggerMode(library.LoggerMode.Error)  # no banner

    def make(num_envs: int, num_threads: int = 0) -> Any:  # 0: it chooses the number of threads
        given = {"num_threads": num_threads, **settings}
        return vectors(name, num_envs, autoreset_mode="SameStep", reward_clipping=False, **given)

    return from_vector(make, env_id, preprocessing, is_threaded=True)
