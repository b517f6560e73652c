"""Any vectorised environment in Gymnasium's interface, in each of its autoreset modes, used as it is."""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import traceback
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from proximo.envs.host.block import STRICT_STEPS, SUCCESS_KEYS, Rules
from proximo.envs.host.observations import (
    Leaf,
    final_observation,
    hold_actions,
    hold_mask,
    hold_observation,
    hold_step,
    leaves,
    make_quick_check,
)
from proximo.envs.host.pool import environment_seeds
from proximo.envs.host.slab import UNTOLD, Layout, Slab
from proximo.errors import EnvError, EnvironmentFault, ProximoError
from proximo.spaces import ACTION_MASK, Box, Space

Autoreset = Literal["next_step", "same_step", "disabled"]


def autoreset_of(env: Any, env_id: str) -> Autoreset:
    """The mode that the environment declares in its metadata; Gymnasium's default is next-step."""
    declared = (getattr(env, "metadata", None) or {}).get("autoreset_mode", "NextStep")
    name = str(getattr(declared, "value", declared)).replace("_", "").lower()
    modes: dict[str, Autoreset] = {"nextstep": "next_step", "samestep": "same_step", "disabled": "disabled"}
    if name not in modes:
        raise EnvError(f"{env_id} declares the autoreset mode {declared!r}: expected one of {', '.join(modes.values())}.")
    return modes[name]


class VectorPool:
    """One vectorised environment, made by ``make(num_envs)``, as a pool of a single group.

    In next-step mode the row behind an episode's last one ignores its action: it is a filler, and the observation that it
    acts upon is the true final one. In same-step mode that one lies in ``info["final_obs"]``. With autoreset disabled we
    reset, by ``reset(options={"reset_mask": ...})``, what has ended.
    """

    how = "vectorised by themselves"
    num_workers = 0
    restarts = 0

    def __init__(self, make: Callable[[int], Any], layout: Layout, rules: Rules, action_space: Space):
        self.env = make(layout.num_envs)
        self.rules, self.num_envs, self.action_space = rules, layout.num_envs, action_space
        self.mode = autoreset_of(self.env, rules.env_id)
        self.groups = (range(layout.num_envs),)
        self.slabs = layout.slabs(mmap.mmap(-1, layout.size))
        self.leaves = leaves(rules.observation_space)
        self.fits_one = make_quick_check(self.leaves)
        self.fits = make_quick_check([dataclasses.replace(leaf, shape=(self.num_envs, *leaf.shape)) for leaf in self.leaves])
        self.any_filler = False
        self.lives = np.zeros(layout.num_envs, np.int64)
        self.seed = self.steps = 0

    def reset(self, slab: int, seed: int) -> None:
        self.seed, self.steps = environment_seeds(1, seed)[0], 0
        try:
            observation, info = self.env.reset(seed=self.seed)
        except (Exception, SystemExit) as error:
            raise self._fault("reset", error) from error
        self._hold(observation, "reset")
        self._write(self.slabs[slab], 0, observation)
        self.slabs[slab].first[0] = True
        self.slabs[slab].filler[0] = self.any_filler = False
        self._check_masks(self.slabs[slab], 0, "reset")
        self.lives[:] = info.get("lives", 0)

    def send(self, slab: int, t: int, group: int) -> None:
        """Nothing runs beside this process: ``receive`` steps."""

    def ready(self, groups: list[int]) -> int:
        return groups[0]

    def receive(self, slab: int, t: int, group: int) -> bool:
        rows = self.slabs[slab]
        actions = rows.action[t].copy()
        if self.rules.holds_actions:
            hold_actions(actions, self.action_space, self.rules.env_id)
        try:
            observation, reward, terminated, truncated, info = self.env.step(actions)
            if self.steps < STRICT_STEPS:
                self._hold(observation, "step")
            if self.steps < STRICT_STEPS or not self._fit(reward, terminated, truncated):
                self._hold_rest(reward, terminated, truncated, info)
            self.steps += 1
            cut = self._store(rows, t, observation, reward, terminated, truncated, info)
            self._check_masks(rows, t + 1, "step")
            return cut
        except (Exception, SystemExit) as error:
            raise self._fault("step", error) from error

    def _store(
        self, rows: Slab, t: int, observation: Any, reward: Any, terminated: Any, truncated: Any, info: dict[str, Any]
    ) -> bool:
        if self.any_filler:
            filler = rows.first[t + 1] = rows.filler[t]
            reward, terminated, truncated = np.where(filler, 0.0, reward), terminated & ~filler, truncated & ~filler
        truncated = truncated & ~terminated
        done = terminated | truncated
        rows.reward[t], rows.terminated[t], rows.truncated[t] = reward, terminated, truncated
        if self.rules.life_loss:
            lives = np.asarray(info["lives"])
            rows.life_lost[t] = (lives < self.lives) & ~done & ~rows.filler[t]
            self.lives[:] = lives
        self._write(rows, t + 1, observation)
        any_done = bool(done.any())
        if any_done:
            self._tell_success(rows, t, done, info)
            self._close_episodes(rows, t, done, truncated, observation, info)
            if self.mode == "next_step":
                rows.filler[t + 1] = done
        self.any_filler = any_done and self.mode == "next_step"
        return any_done and bool(truncated.any())

    def _close_episodes(self, rows: Slab, t: int, done: Any, truncated: Any, observation: Any, info: dict[str, Any]) -> None:
        """Store the true final observations of truncated episodes. With autoreset disabled, reset the environments whose episode ended."""
        places = np.flatnonzero(truncated)
        if self.mode == "same_step":
            for i in places:
                final = final_observation(info, i)
                if final is None:
                    raise EnvError(
                        f'{self.rules.env_id} declares same-step autoreset and gave no info["final_obs"] for an episode that it truncated: expected its last observation.'
                    )
                if not self.fits_one(final):
                    hold_observation(final, self.leaves, f'{self._where("step", int(i))}, in info["final_obs"],')
                for array, leaf in zip(rows.final, self.leaves, strict=True):
                    array[i] = leaf.of(final)
        else:
            for array, leaf in zip(rows.final, self.leaves, strict=True):
                array[places] = np.asarray(leaf.of(observation))[places]
        if self.mode == "next_step":
            return
        rows.first[t + 1] = done
        if self.mode == "disabled":
            fresh, info = self.env.reset(options={"reset_mask": np.array(done)})
            if self.steps <= STRICT_STEPS or not self.fits(fresh):
                self._hold(fresh, "reset")
            # Only of the environments that were reset: the others keep the observation of their step.
            for array, leaf in zip(rows.observation, self.leaves, strict=True):
                array[t + 1, done] = np.asarray(leaf.of(fresh))[done]
        if self.rules.life_loss:
            self.lives[done] = np.asarray(info["lives"])[done]

    def _tell_success(self, rows: Slab, t: int, done: Any, info: dict[str, Any]) -> None:
        told = info.get("final_info", info) if self.mode == "same_step" else info
        for key in SUCCESS_KEYS:
            if isinstance(told, dict) and key in told:
                known = done & np.asarray(told.get(f"_{key}", True), bool)
                rows.success[t] = np.where(known, np.asarray(told[key]) != 0, UNTOLD)
                return

    def _fit(self, *values: Any) -> bool:
        """Whether reward, terminated and truncated may be stored as they are."""
        for value, kinds in zip(values, ("fiu", "b", "b"), strict=True):
            if type(value) is not np.ndarray or value.dtype.kind not in kinds or value.shape != (self.num_envs,):
                return False
        return True

    def _write(self, rows: Slab, row: int, observation: Any) -> None:
        if not self.fits(observation):
            self._hold(observation, "step")
        for array, leaf in zip(rows.observation, self.leaves, strict=True):
            array[row] = leaf.of(observation)

    def _hold(self, observation: Any, call: str) -> None:
        """The strict check of the first steps, environment by environment."""
        for leaf in self.leaves:
            whole = dataclasses.replace(leaf, shape=(self.num_envs, *leaf.shape))
            value = np.asarray(leaf.of(observation))
            if value.shape != whole.shape:
                hold_observation(observation, [whole], f"{self.rules.env_id}.{call}")
            if isinstance(leaf.space, Box) and value.dtype == leaf.dtype and np.isfinite(value).all():
                continue  # all at once, where nothing is to be told
            for i in range(self.num_envs):
                hold_observation(value[i], [Leaf((), leaf.space, leaf.shape, leaf.dtype)], self._where(call, i))

    def _check_masks(self, rows: Slab, row: int, call: str) -> None:
        """Raise ``EnvError`` if a mask allows no action. Masks of final observations are not checked, because no action follows them."""
        for array, leaf in zip(rows.observation, self.leaves, strict=True):
            if leaf.path == (ACTION_MASK,):
                allows = array[row].reshape(self.num_envs, -1).any(axis=1)
                for i in np.flatnonzero(~allows & ~rows.filler[row]):
                    hold_mask({ACTION_MASK: array[row, i]}, [leaf], self._where(call, int(i)))

    def _hold_rest(self, reward: Any, terminated: Any, truncated: Any, info: Any) -> None:
        for name, value in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
            if np.shape(value) != (self.num_envs,):
                raise EnvError(
                    f"{self.rules.env_id}.step returned {name} of shape {np.shape(value)}: expected ({self.num_envs},)."
                )
        flags_fit = np.asarray(terminated).dtype == np.asarray(truncated).dtype == bool and isinstance(info, dict)
        if flags_fit and np.asarray(reward).dtype.kind in "fiub" and np.isfinite(np.asarray(reward, np.float32)).all():
            return
        for i in range(self.num_envs):
            hold_step(reward[i], terminated[i], truncated[i], info, self._where("step", i))

    def _where(self, call: str, number: int) -> str:
        return f"{self.rules.env_id}.{call} of environment {number} (seed {self.seed}, {self.steps} steps)"

    def _fault(self, call: str, error: BaseException) -> BaseException:
        if isinstance(error, ProximoError):
            told = str(error)
            named = self.rules.env_id in told
            return error if named else EnvError(f"{self.rules.env_id}.{call} (seed {self.seed}, {self.steps} steps) {told}")
        text = "".join(traceback.format_exception(error)).rstrip()
        return EnvironmentFault(
            f"{self.rules.env_id}.{call} (seed {self.seed}, step {self.steps}) raised {type(error).__name__}: {error}\n{text}"
        )

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.env.close()
