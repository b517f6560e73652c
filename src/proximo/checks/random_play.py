"""Plays random actions in a single environment or a vector environment, and records the transitions."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.actions import allowed_action
from proximo.envs.gymnasium.observations import Leaf, leaves
from proximo.envs.gymnasium.vector_environment import VectorEnvironment
from proximo.errors import EnvError
from proximo.spaces import ACTION_MASK, Space

PLAY_SECONDS = 3.0
MIN_STEPS = 10


class Transition(NamedTuple):
    """A step of one environment, or a reset (``episode_start``), which has no reward and no flags."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any
    episode_start: bool


class Episode(NamedTuple):
    """How an episode ended, and after how many steps."""

    length: int
    terminated: bool
    truncated: bool


def mask_in(observation: Any) -> Any:
    """The action mask of an observation; None if it has none."""
    return observation.get(ACTION_MASK) if isinstance(observation, dict) else None


@contextlib.contextmanager
def made(make: Callable[[], Any], env_id: str) -> Iterator[Any]:
    """An environment that ``make()`` returns; it is closed at the end. Raises ``EnvError`` if it cannot be made, and ignores errors of its
    ``close``, which would hide others."""
    with custom_code_errors(f"Making {env_id}"):
        env = make()
    try:
        yield env
    finally:
        with contextlib.suppress(Exception, SystemExit):
            env.close()


def reset(env: Any, env_id: str, seed: int | None) -> tuple[Any, Any]:
    """Call ``env.reset``. Raises ``EnvError`` unless it returns a pair."""
    with custom_code_errors(f"{env_id}.reset"):
        pair = env.reset(seed=seed) if seed is not None else env.reset()
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise EnvError(f"{env_id}.reset returned {type(pair).__name__}: expected a pair (observation, info).")
    return pair


def step(env: Any, env_id: str, action: Any) -> tuple[Any, ...]:
    """Call ``env.step``. Raises ``EnvError`` unless it returns five values."""
    with custom_code_errors(f"{env_id}.step"):
        result = env.step(action)
    if not isinstance(result, tuple) or len(result) != 5:
        got = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise EnvError(f"{env_id}.step returned {got}: expected (observation, reward, terminated, truncated, info).")
    return result


def play(
    env: Any, env_id: str, action_space: Space, steps: int, seed: int = 0, seconds: float = PLAY_SECONDS
) -> list[Transition]:
    """Take ``steps`` random steps, fewer if they take longer than ``seconds``. Each action depends only on its step number."""
    return list(transitions(env, env_id, action_space, steps, seed, seconds))


def transitions(
    env: Any, env_id: str, action_space: Space, steps: int, seed: int = 0, seconds: float = PLAY_SECONDS
) -> Iterator[Transition]:
    """The transitions of ``play``, one by one."""
    observation, info = reset(env, env_id, seed)
    yield Transition(copy.deepcopy(observation), None, None, None, info, True)
    started = time.perf_counter()
    for t in range(steps):
        if t >= MIN_STEPS and time.perf_counter() - started > seconds:
            break
        action = allowed_action(action_space, np.random.default_rng([0, t]), mask_in(observation))
        observation, reward, terminated, truncated, info = step(env, env_id, action)
        yield Transition(copy.deepcopy(observation), copy.deepcopy(reward), terminated, truncated, info, False)
        if np.any(terminated) or np.any(truncated):
            observation, info = reset(env, env_id, None)
            yield Transition(copy.deepcopy(observation), None, None, None, info, True)


def first_difference(one: list[Transition], other: list[Transition], expected: list[Leaf]) -> int | None:
    """Index of the first transition in which two plays differ; None if the transitions that both have are equal."""
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        same = a.episode_start == b.episode_start and _equal(a.reward, b.reward)
        same = same and all(_equal(x, y) for x, y in ((a.terminated, b.terminated), (a.truncated, b.truncated)))
        if not same or not all(_equal(leaf.of(a.observation), leaf.of(b.observation)) for leaf in expected):
            return number
    return None


def _equal(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def episodes_of(played: list[Transition]) -> list[Episode]:
    """The episodes that ended in a play."""
    names = ("terminated", "truncated", "episode_start")
    terminated, truncated, starts = (np.array([[bool(np.any(getattr(t, name)))] for t in played]) for name in names)
    return episodes_in(terminated, truncated, ~starts)


def episodes_in(terminated: np.ndarray, truncated: np.ndarray, valid: np.ndarray | None = None) -> list[Episode]:
    """The episodes that ended.

    Args:
        terminated: ``[T, N]``, whether a step terminated its episode.
        truncated: ``[T, N]``, whether a step truncated its episode.
        valid: ``[T, N]``, False where an entry is not a step of an episode (padding). None if all are.
    """
    ended = []
    steps = np.cumsum(np.ones_like(terminated) if valid is None else valid, axis=0)
    for column in range(terminated.shape[1]):
        before = 0
        for t in np.flatnonzero(terminated[:, column] | truncated[:, column]):
            ended.append(Episode(int(steps[t, column]) - before, bool(terminated[t, column]), bool(truncated[t, column])))
            before = int(steps[t, column])
    return ended


def stacked_observations(played: list[Transition], expected: list[Leaf]) -> list[np.ndarray]:
    """The observations of a play, of shape ``[len(played), ...]`` for each leaf."""
    return [np.stack([np.asarray(leaf.of(transition.observation)) for transition in played]) for leaf in expected]


def rewards_of(played: list[Transition]) -> np.ndarray:
    """The rewards of the steps of a play."""
    return np.array([float(transition.reward) for transition in played if not transition.episode_start])


@dataclass(frozen=True)
class Streams:
    """What ``N`` environments returned in ``T`` steps: observations of shape ``[T + 1, N, ...]`` for each leaf, the rest ``[T, N]``."""

    observation: tuple[np.ndarray, ...]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray

    def equals(self, other: Streams, column: int | None = None) -> bool:
        """Whether both are equal in all environments, or in the one at ``column``."""
        which = slice(None) if column is None else slice(column, column + 1)
        pairs = zip(self.arrays, other.arrays, strict=True)
        return all(_equal(a[:, which], b[:, which]) for a, b in pairs)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All arrays that are compared."""
        return (*self.observation, self.reward, self.terminated, self.truncated)

    def equal_pair(self) -> tuple[int, int] | None:
        """Two environments that are equal in every step; None if all differ."""
        number = self.reward.shape[1]
        pairs = [(i, j) for i in range(number) for j in range(i + 1, number)]
        return next(((i, j) for i, j in pairs if all(_equal(a[:, i], a[:, j]) for a in self.arrays)), None)

    def episodes(self) -> list[Episode]:
        """The episodes that ended."""
        return episodes_in(self.terminated, self.truncated, self.valid)


def play_vector_env(
    vector_env: VectorEnvironment, observation_space: Space, action_space: Space, seed: int = 0, autoreset_seed: int = 0
) -> Streams:
    """Fill the first rollout buffer with random steps.

    All environments take the same actions. Actions of autoreset steps, which must be ignored, depend on ``autoreset_seed``.
    """
    buffer = vector_env.buffers[0]
    names = [leaf.path for leaf in leaves(observation_space)]
    mask_at = names.index((ACTION_MASK,)) if (ACTION_MASK,) in names else None
    buffer.clear()
    vector_env.reset(0, seed)
    for t in range(len(buffer.action)):
        for i in range(buffer.action.shape[1]):
            mask = None if mask_at is None else buffer.observation[mask_at][t, i]
            rng = np.random.default_rng([0 if buffer.valid[t, i] else autoreset_seed, t])
            buffer.action[t, i] = allowed_action(action_space, rng, mask)
        vector_env.send(0, t, 0)
        vector_env.receive(0, t, 0)
    kept = (buffer.reward, buffer.terminated, buffer.truncated, buffer.valid[:-1])
    return Streams(tuple(array.copy() for array in buffer.observation), *(array.copy() for array in kept))
