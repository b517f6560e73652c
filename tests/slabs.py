"""Rollouts of the host made by hand."""

import numpy as np

from proximo.envs.host.slab import SUCCESS, UNTOLD, Slab


def slab_of(reward, terminated=(), truncated=(), filler=(), cut=(), success=None, lost=()):
    steps, envs = reward.shape

    def flags(places, rows=steps):
        flags = np.zeros((rows, envs), bool)
        for place in places:
            flags[place] = True
        return flags

    told = np.full((steps, envs), UNTOLD, np.int8)
    for place in success or ():
        told[place] = SUCCESS
    return Slab(
        observation=(), first=flags((), steps + 1), action=np.zeros((steps, envs)), reward=reward, terminated=flags(terminated),
        truncated=flags(truncated), life_lost=flags(lost), filler=flags(filler, steps + 1), cut=flags(cut), success=told, final=(),
    )  # fmt: skip
