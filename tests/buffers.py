"""Rollout buffers for tests."""

import numpy as np

from proximo.envs.gymnasium.rollout_buffer import SUCCESS, UNREPORTED, RolloutBuffer


def buffer_of(reward, terminated=(), truncated=(), invalid=(), lost=(), success=None, life_lost=()):
    steps, envs = reward.shape

    def flags(places, rows=steps):
        flags = np.zeros((rows, envs), bool)
        for place in places:
            flags[place] = True
        return flags

    successes = np.full((steps, envs), UNREPORTED, np.int8)
    for place in success or ():
        successes[place] = SUCCESS
    return RolloutBuffer(
        observation=(), episode_start=flags((), steps + 1), action=np.zeros((steps, envs)), reward=reward, terminated=flags(terminated),
        truncated=flags(truncated), life_lost=flags(life_lost), valid=~flags(invalid, steps + 1), lost=flags(lost), success=successes, final_observation=(),
    )  # fmt: skip
