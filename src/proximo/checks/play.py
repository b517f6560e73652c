"""Random actions in one plain environment, or in a pool of them, and what came of it."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from proximo.envs.host.observations import Leaf, allowed_action, leaves
from proximo.envs.host.pool import Pool
from proximo.errors import EnvError
from proximo.spaces import ACTION_MASK, Space
from proximo.users_code import users_code

PLAY_SECONDS = 3.0
FEWEST_STEPS = 10


class Row(NamedTuple):
    """A step of one environment, or a reset (``first``), which has neither reward nor flags."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any
    first: bool


class Episode(NamedTuple):
    """How an episode ended, and after how many steps."""

    length: int
    terminated: bool
    truncated: bool


def mask_in(observation: Any) -> Any:
    """The mask of an observation that has one, else None."""
    return observation.get(ACTION_MASK) if isinstance(observation, dict) else None


def begin(env: Any, env_id: str, seed: int | None) -> tuple[Any, Any]:
    """``env.reset``, held to be a pair."""
    with users_code(f"{env_id}.reset"):
        pair = env.reset(seed=seed) if seed is not None else env.reset()
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise EnvError(f"{env_id}.reset returned {type(pair).__name__}: expected a pair (observation, info).")
    return pair


def step(env: Any, env_id: str, action: Any) -> tuple[Any, ...]:
    """``env.step``, held to be five values."""
    with users_code(f"{env_id}.step"):
        result = env.step(action)
    if not isinstance(result, tuple) or len(result) != 5:
        got = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise EnvError(f"{env_id}.step returned {got}: expected (observation, reward, terminated, truncated, info).")
    return result


def play(env: Any, env_id: str, action_space: Space, steps: int, seed: int = 0, seconds: float = PLAY_SECONDS) -> list[Row]:
    """``steps`` random steps, fewer where they take longer than ``seconds``; the actions follow from their number alone."""
    observation, info = begin(env, env_id, seed)
    rows = [Row(copy.deepcopy(observation), None, None, None, info, True)]
    started = time.perf_counter()
    for t in range(steps):
        if t >= FEWEST_STEPS and time.perf_counter() - started > seconds:
            break
        action = allowed_action(action_space, np.random.default_rng([0, t]), mask_in(observation))
        observation, reward, terminated, truncated, info = step(env, env_id, action)
        rows.append(Row(copy.deepcopy(observation), copy.deepcopy(reward), terminated, truncated, info, False))
        if np.any(terminated) or np.any(truncated):
            observation, info = begin(env, env_id, None)
            rows.append(Row(copy.deepcopy(observation), None, None, None, info, True))
    return rows


def first_difference(one: list[Row], other: list[Row], expected: list[Leaf]) -> int | None:
    """The number of the first row in which two plays differ, of those that both have; None where they are equal."""
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        same = a.first == b.first and _equal(a.reward, b.reward)
        same = same and all(_equal(x, y) for x, y in ((a.terminated, b.terminated), (a.truncated, b.truncated)))
        if not same or not all(_equal(leaf.of(a.observation), leaf.of(b.observation)) for leaf in expected):
            return number
    return None


def _equal(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def episodes_of(rows: list[Row]) -> list[Episode]:
    """The episodes that ended in a play."""
    ended, length = [], 0
    for row in rows:
        length = 0 if row.first else length + 1
        if not row.first and (np.any(row.terminated) or np.any(row.truncated)):
            ended.append(Episode(length, bool(np.any(row.terminated)), bool(np.any(row.truncated))))
    return ended


def stacked(rows: list[Row], expected: list[Leaf]) -> list[np.ndarray]:
    """The observations of a play, ``rows ...`` for each leaf."""
    return [np.stack([np.asarray(leaf.of(row.observation)) for row in rows]) for leaf in expected]


@dataclass(frozen=True)
class Streams:
    """What a pool of ``N`` environments gave in ``T`` steps: observations ``T+1 N ...`` for each leaf, the rest ``T N``."""

    observation: tuple[np.ndarray, ...]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    filler: np.ndarray

    def equals(self, other: Streams, column: int | None = None) -> bool:
        """Whether all columns, or one of them, are the same in both."""
        which = slice(None) if column is None else slice(column, column + 1)
        pairs = zip(self.arrays, other.arrays, strict=True)
        return all(_equal(a[:, which], b[:, which]) for a, b in pairs)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All of them."""
        return (*self.observation, self.reward, self.terminated, self.truncated)

    def twins(self) -> tuple[int, int] | None:
        """Two columns that are the same in every step, where there are such."""
        number = self.reward.shape[1]
        pairs = [(i, j) for i in range(number) for j in range(i + 1, number)]
        return next(((i, j) for i, j in pairs if all(_equal(a[:, i], a[:, j]) for a in self.arrays)), None)

    def episodes(self) -> list[Episode]:
        """The episodes that ended."""
        ended = []
        for column in range(self.reward.shape[1]):
            length = 0
            for t in range(self.reward.shape[0]):
                length += not self.filler[t, column]
                terminated, truncated = self.terminated[t, column], self.truncated[t, column]
                if terminated or truncated:
                    ended.append(Episode(length, bool(terminated), bool(truncated)))
                    length = 0
        return ended


def play_pool(pool: Pool, observation_space: Space, action_space: Space, seed: int = 0, fillers: int = 0) -> Streams:
    """As many random steps as the pool's slabs have rows; all environments draw the same actions, except that filler rows
    draw theirs by the number ``fillers``."""
    slab = pool.slabs[0]
    names = [leaf.path for leaf in leaves(observation_space)]
    mask_at = names.index((ACTION_MASK,)) if (ACTION_MASK,) in names else None
    slab.clear()
    pool.reset(0, seed)
    for t in range(len(slab.action)):
        for i in range(slab.action.shape[1]):
            mask = None if mask_at is None else slab.observation[mask_at][t, i]
            rng = np.random.default_rng([fillers if slab.filler[t, i] else 0, t])
            slab.action[t, i] = allowed_action(action_space, rng, mask)
        pool.send(0, t, 0)
        pool.receive(0, t, 0)
    kept = (slab.reward, slab.terminated, slab.truncated, slab.filler[:-1])
    return Streams(tuple(array.copy() for array in slab.observation), *(array.copy() for array in kept))
