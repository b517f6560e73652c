"""Several plain environments, stepped one after the other into neighbouring columns of a slab."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from proximo.envs.host.observations import FLAGS, NUMBERS, hold_mask, hold_observation, hold_step, leaves, make_quick_check
from proximo.envs.host.slab import FAILURE, SUCCESS, UNTOLD, Slab
from proximo.errors import EnvError, EnvironmentFault, ProximoError
from proximo.spaces import ACTION_MASK, Space

STRICT_STEPS = 1000
NO_LIMIT = 2**62
PAIR = "expected a pair (observation, info); the old gym interface had the observation alone"
SUCCESS_KEYS = ("success", "is_success")


@dataclass(frozen=True)
class Rules:
    """What is done with every environment beside stepping it."""

    env_id: str
    observation_space: Space
    max_episode_steps: int = 0
    """Episodes are truncated after so many steps, beside the environment's own limit; 0: off."""
    holds_actions: bool = False
    """Actions are held against their space before they are given: native code may not look."""
    life_loss: bool = False
    """A life less in ``info["lives"]`` is a termination to the learner."""


def told_success(info: dict[str, Any]) -> int:
    """Whether ``info`` calls the episode that it ends a success."""
    for key in SUCCESS_KEYS:
        if key in info:
            return SUCCESS if bool(np.all(np.asarray(info[key]) != 0)) else FAILURE
    return UNTOLD


class Block:
    """Environments of the numbers ``columns``, made by ``make()``. An episode that ends is reset in the same step, so that
    no row is a filler."""

    def __init__(self, make: Callable[[], Any], columns: range, rules: Rules):
        self.rules, self.columns = rules, columns
        self.leaves = leaves(rules.observation_space)
        self.fits = make_quick_check(self.leaves)
        self.single = len(self.leaves) == 1 and not self.leaves[0].path
        self.envs = [make() for _ in columns]
        self.strict_steps = STRICT_STEPS if len(columns) < 100 else max(10, 100 * STRICT_STEPS // len(columns))
        """Number of steps with the full check. It is lower for many environments: a check takes longer than a step of a small one."""
        self.lengths = [0] * len(columns)
        self.limits = [NO_LIMIT] * len(columns)
        self.lives = [0] * len(columns)
        self.seeds = [0] * len(columns)
        self.steps = 0
        self.masked = any(leaf.path == (ACTION_MASK,) for leaf in self.leaves)
        self.call = "step"
        """What runs just now, as a fault names it."""

    def reset(self, slab: Slab, row: int, seeds: Sequence[int], first_limits: Sequence[int] | None = None) -> None:
        """Begin anew in ``row``, with a seed for each environment; their first episodes are cut after ``first_limits``."""
        limit = self.rules.max_episode_steps or NO_LIMIT
        self.seeds, self.steps = list(seeds), 0
        for k, env in enumerate(self.envs):
            self.limits[k] = min(limit, first_limits[k]) if first_limits else limit
            try:
                self._begin(slab, row, k, env, self.seeds[k])
            except (Exception, SystemExit) as error:  # a simulator's window that is closed calls sys.exit
                raise self._fault(k, error) from error

    def _begin(self, slab: Slab, row: int, k: int, env: Any, seed: int | None) -> None:
        """A fresh episode of environment ``k``, whose first observation lies in ``row``."""
        self.call = "reset"
        pair = env.reset(seed=seed) if seed is not None else env.reset()
        where = self._where(k, "reset")
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], dict):
            raise EnvError(f"{where} returned {type(pair).__name__}: {PAIR}.")
        observation, info = pair
        if self.steps < self.strict_steps or not self.fits(observation):
            hold_observation(observation, self.leaves, where)
        if self.masked:
            hold_mask(observation, self.leaves, where)
        self.lengths[k], self.lives[k] = 0, info.get("lives", 0) if self.rules.life_loss else 0
        slab.first[row, self.columns[k]] = True
        self._write(slab.observation, row, k, observation)
        self.call = "step"

    def step(self, slab: Slab, t: int) -> bool:
        """Step ``t`` of every environment of the block; whether it truncated an episode."""
        start, stop = self.columns.start, self.columns.stop
        actions = slab.action[t, start:stop].copy()  # an environment may keep what it is given
        k = 0
        cut = False
        try:
            for k, env in enumerate(self.envs):
                cut |= self._step(slab, t, k, env, actions[k])
        except (Exception, SystemExit) as error:
            raise self._fault(k, error) from error
        self.steps += 1
        return cut

    def _step(self, slab: Slab, t: int, k: int, env: Any, action: Any) -> bool:
        observation, reward, terminated, truncated, info = env.step(action)
        strict = self.steps < self.strict_steps
        if strict:
            where = self._where(k, "step")
            hold_observation(observation, self.leaves, where)
            hold_step(reward, terminated, truncated, info, where)
            if ACTION_MASK in info and not self.masked:
                raise EnvError(
                    f"{where} gave an {ACTION_MASK} in its info, and its first reset gave none: give one at every reset too."
                )
        elif not (
            self.fits(observation)
            and type(reward) in NUMBERS
            and (terminated is False or type(terminated) in FLAGS)
            and (truncated is False or type(truncated) in FLAGS)
        ):
            where = self._where(k, "step")
            hold_observation(observation, self.leaves, where)
            hold_step(reward, terminated, truncated, info, where)
        column = self.columns[k]
        slab.reward[t, column] = reward
        self.lengths[k] += 1
        truncated = (truncated or self.lengths[k] >= self.limits[k]) and not terminated
        if not (terminated or truncated):
            if self.masked and not np.any(observation[ACTION_MASK]):
                hold_mask(observation, self.leaves, self._where(k, "step"))
            if self.rules.life_loss:
                self._count_lives(slab, t, k, info)
            if self.single:  # inlined: for small environments a call of _write takes noticeable time
                slab.observation[0][t + 1, column] = observation
            else:
                self._write(slab.observation, t + 1, k, observation)
            return False
        slab.terminated[t, column], slab.truncated[t, column] = terminated, truncated
        slab.success[t, column] = told_success(info)
        if truncated:
            for array, leaf in zip(slab.final, self.leaves, strict=True):
                array[column] = leaf.of(observation)
        self.limits[k] = self.rules.max_episode_steps or NO_LIMIT
        self._begin(slab, t + 1, k, env, None)
        return truncated

    def _count_lives(self, slab: Slab, t: int, k: int, info: dict[str, Any]) -> None:
        lives = info.get("lives", 0)
        slab.life_lost[t, self.columns[k]] = lives < self.lives[k]
        self.lives[k] = lives

    def _write(self, arrays: tuple[np.ndarray, ...], row: int, k: int, observation: Any) -> None:
        if self.single:
            arrays[0][row, self.columns[k]] = observation
            return
        for array, leaf in zip(arrays, self.leaves, strict=True):
            array[row, self.columns[k]] = leaf.of(observation)

    def _where(self, k: int, call: str) -> str:
        return (
            f"{self.rules.env_id}.{call} of environment {self.columns[k]} (seed {self.seeds[k]}, "
            f"step {self.lengths[k]} of its episode, {self.steps} since the start)"
        )

    def _fault(self, k: int, error: BaseException) -> BaseException:
        """What to raise for ``error``: itself where it is a sentence already that says where."""
        call, self.call = self.call, "step"
        if isinstance(error, ProximoError):
            told = str(error)
            return error if told.startswith(self.rules.env_id) else EnvError(f"{self._where(k, call)} {told}")
        text = "".join(traceback.format_exception(error)).rstrip()
        return EnvironmentFault(f"{self._where(k, call)} raised {type(error).__name__}: {error}\n{text}")

    def close(self) -> None:
        """Close every environment, whatever each of them raises."""
        for env in self.envs:
            with contextlib.suppress(Exception):
                env.close()
