"""What a driver sees of environments, wherever they are stepped; and the simplest of them, in this very process."""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from proximo.envs.host.block import Block, Rules
from proximo.envs.host.slab import Layout, Slab


@runtime_checkable
class Pool(Protocol):
    """``N`` environments in groups of neighbouring columns, which step into slabs independently of each other."""

    slabs: tuple[Slab, ...]
    groups: tuple[range, ...]
    num_workers: int
    """Processes that step; 0: this one."""
    how: str
    """Where they are stepped, in words."""
    restarts: int
    """Workers that were lost and made anew so far."""

    def reset(self, slab: int, seed: int) -> None:
        """Begin anew in row 0 of ``slab``: every environment with a seed of its own, which follows from ``seed``."""
        ...

    def send(self, slab: int, t: int, group: int) -> None:
        """Let a group take step ``t`` with the actions of its row."""
        ...

    def ready(self, groups: list[int]) -> int:
        """One of ``groups`` (which have been sent) that need not be waited for, or the one to wait for."""
        ...

    def receive(self, slab: int, t: int, group: int) -> bool:
        """Wait until the step is done; whether it truncated an episode."""
        ...

    def close(self) -> None:
        """End every environment and process."""
        ...


def environment_seeds(num_envs: int, *source: int) -> list[int]:
    """Distinct seeds for ``num_envs`` environments, which depend on ``source`` only and not on the number of processes.

    They have 31 bits, because some libraries accept no more. A larger ``num_envs`` keeps these seeds and adds others.
    """
    drawn = num_envs
    while True:
        seeds = list(dict.fromkeys(int(x) >> 1 for x in np.random.SeedSequence(source).generate_state(drawn)))
        if len(seeds) >= num_envs:
            return seeds[:num_envs]
        drawn += num_envs - len(seeds)


def staggered_limits(num_envs: int, stagger_steps: int, seed: int) -> list[int] | None:
    """After how many steps each environment's first episode is cut, 1 … ``stagger_steps``; None without a stagger."""
    if not stagger_steps:
        return None
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    return [int(x) for x in rng.integers(1, stagger_steps + 1, num_envs)]


def split(columns: range, parts: int) -> tuple[range, ...]:
    """``columns`` in contiguous parts that differ by one at most."""
    borders = [columns.start + len(columns) * i // parts for i in range(parts + 1)]
    return tuple(range(a, b) for a, b in itertools.pairwise(borders))


class InProcess:
    """All environments in this process, one after the other: the fastest way where a step costs less than a hand-over."""

    how = "in this process"
    num_workers = 0
    restarts = 0

    def __init__(self, make: Callable[[], Any], layout: Layout, rules: Rules, num_groups: int = 1, stagger_steps: int = 0):
        self.groups = split(range(layout.num_envs), num_groups)
        self.slabs = layout.slabs(mmap.mmap(-1, layout.size))
        self.stagger_steps = stagger_steps
        self.blocks = [Block(make, columns, rules) for columns in self.groups]

    def reset(self, slab: int, seed: int) -> None:
        num_envs = self.groups[-1].stop
        seeds, limits = environment_seeds(num_envs, seed), staggered_limits(num_envs, self.stagger_steps, seed)
        self.slabs[slab].filler[0] = False
        for block in self.blocks:
            part = slice(block.columns.start, block.columns.stop)
            block.reset(self.slabs[slab], 0, seeds[part], limits and limits[part])

    def send(self, slab: int, t: int, group: int) -> None:
        """Nothing runs beside this process: ``receive`` steps."""

    def ready(self, groups: list[int]) -> int:
        return groups[0]

    def receive(self, slab: int, t: int, group: int) -> bool:
        return self.blocks[group].step(self.slabs[slab], t)

    def close(self) -> None:
        for block in self.blocks:
            block.close()
