"""Steps a Gymnasium ``VectorEnv`` in any autoreset mode into neighboring columns of a rollout buffer."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from proximo.envs.gymnasium.rollout_buffer import RolloutBuffer
from proximo.envs.gymnasium.stepper import (
    MASK_ONLY_IN_STEPS,
    STRICT_STEPS,
    SUCCESS_KEYS,
    BaseStepper,
    EnvironmentSpec,
    environment_seeds,
    reported_success,
)
from proximo.envs.gymnasium.transition_checks import (
    check_actions,
    check_observation,
    check_step,
    is_finite,
    located,
    make_quick_check,
)
from proximo.errors import EnvError
from proximo.spaces import ACTION_MASK, nested

MODES = {"nextstep": "next_step", "samestep": "same_step", "disabled": "disabled"}
KINDS = ("fbb", "ibb", "ubb")
"""Kinds of the dtypes of rewards and of both flags."""


def autoreset_of(env: Any, env_id: str) -> str:
    """Return the autoreset mode that ``env.metadata`` declares; Gymnasium's default is next-step."""
    declared = (getattr(env, "metadata", None) or {}).get("autoreset_mode", "NextStep")
    name = str(getattr(declared, "value", declared)).replace("_", "").lower()
    if name not in MODES:
        raise EnvError(f"{env_id} declares the autoreset mode {declared!r}: expected one of {', '.join(MODES.values())}.")
    return MODES[name]


def final_observation(info: dict[str, Any], number: int | np.integer) -> Any:
    """Return the final observation of environment ``number`` from the ``info`` of a vector environment; None if it has none.

    ``info["final_obs"]`` has an observation for each environment, as in Gymnasium, or is a batch of observations.
    """

    def one(batch: Any) -> Any:
        if isinstance(batch, dict):
            return {key: one(part) for key, part in batch.items()}
        return tuple(map(one, batch)) if isinstance(batch, tuple) else batch[number]

    return one(info["final_obs"]) if info.get("final_obs") is not None else None


class VectorStepper(BaseStepper):
    """The ``VectorEnv`` of one group, which fills some columns of the rollout buffer.

    - Next-step autoreset: the step after the end of an episode ignores its action. It is marked as invalid, and its observation is the
      true final observation.
    - Same-step autoreset: the true final observation is in ``info["final_obs"]``.
    - Disabled autoreset: this class resets environments whose episode ended, by ``reset(options={"reset_mask": ...})``.

    ``is_async``: the ``VectorEnv`` has ``send(actions)``, which begins a step, and ``recv()``, which returns what ``step`` returns.
    """

    def __init__(
        self, make: Callable[[int], Any], spec: EnvironmentSpec, buffer: RolloutBuffer, columns: range, is_async: bool = False
    ):
        super().__init__(spec, buffer, columns)
        self.make, self.env, self.is_async = make, make(self.num_envs), is_async
        self.batched = [dataclasses.replace(leaf, shape=(self.num_columns, *leaf.shape)) for leaf in self.leaves]
        self.fits = make_quick_check(self.batched)
        self.all_valid = True
        """Whether all environments will act in the next step: it resets none of them."""
        self.is_stepping = False
        """Whether ``send`` has begun a step."""
        self.seed, self.lives, self.mode = 0, np.zeros(self.num_columns, np.int64), autoreset_of(self.env, spec.env_id)

    @located
    def reset(self, row: int, source: Sequence[int], _: int = 0) -> None:
        """Reset all environments into a row, with a seed that depends on ``source``."""
        if self.is_stepping:  # an interrupted step
            self.close()
            self.env, self.is_stepping = self.make(self.num_envs), False
        self.seed, self.steps, self.call = (environment_seeds(1, *source)[0] + self.first) % 2**31, 0, "reset"
        observation, info = self.env.reset(seed=self.seed)
        check_observation(observation, self.batched, self.where, range(self.num_columns))
        self.write(self.rows.observation, row, observation)
        self.rows.episode_start[row] = self.rows.valid[row] = self.all_valid = True
        self.check_masks(row)
        self.lives[:] = 0
        self.lives[:] = self._reported_lives(info)

    @located
    def send(self, t: int) -> None:
        """Begin a step, or remember its actions for ``step``."""
        self.call, self.actions = "step", self.rows.action[t].copy()
        if self.spec.checks_actions:
            check_actions(self.actions, self.spec.action_space, self.spec.env_id, self.first)
        if self.is_async:
            self.env.send(nested(self.spec.action_space, self.actions))
            self.is_stepping = True

    @located
    def step(self, t: int) -> bool:
        """Take step ``t``. Returns whether it truncated an episode."""
        rows = self.rows
        observation, *results, info = (
            self.env.recv() if self.is_async else self.env.step(nested(self.spec.action_space, self.actions))
        )
        self.is_stepping = False
        reward, terminated, truncated = map(np.asarray, results)  # lists are valid, too
        kinds = reward.dtype.kind + terminated.dtype.kind + truncated.dtype.kind
        fit = (
            reward.shape == terminated.shape == truncated.shape == (self.num_columns,)
            and kinds in KINDS
            and isinstance(info, dict)
        )
        if self.steps < STRICT_STEPS or not (fit and self.fits(observation)):
            check_observation(observation, self.batched, self.where, range(self.num_columns))
            for name, value in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
                if value.shape != (self.num_columns,):
                    raise EnvError(f"{self.where()} returned {name} of shape {value.shape}: expected ({self.num_columns},).")
            for i in () if fit and is_finite(reward) else range(self.num_columns):
                check_step(reward[i], terminated[i], truncated[i], info, functools.partial(self.where, i))
            if ACTION_MASK in info and not self.masks:
                raise EnvError(f"{self.where()} {MASK_ONLY_IN_STEPS}")
        self.steps += 1
        if not self.all_valid:
            valid = rows.valid[t]
            rows.episode_start[t + 1] = ~valid
            reward, terminated, truncated = np.where(valid, reward, 0.0), terminated & valid, truncated & valid
        truncated = truncated & ~terminated
        done = terminated | truncated
        rows.reward[t], rows.terminated[t], rows.truncated[t] = reward, terminated, truncated
        if self.spec.life_loss:
            lives = self._reported_lives(info)
            rows.life_lost[t] = (lives < self.lives) & ~done & rows.valid[t]
            self.lives[:] = lives
        self.write(rows.observation, t + 1, observation)
        any_done = bool(done.any())
        if any_done:
            self.lives[done] = 0  # until the reset reports them
            self._close_episodes(t, done, truncated, info)
        self.all_valid = not (any_done and self.mode == "next_step")
        self.check_masks(t + 1)
        return any_done and bool(truncated.any())

    def _close_episodes(self, t: int, done: np.ndarray, truncated: np.ndarray, info: dict[str, Any]) -> None:
        """Store the successes of ended episodes, and the final observations of truncated ones. With autoreset disabled, reset what ended."""
        rows, same_step = self.rows, self.mode == "same_step"
        last = info.get("final_info", info) if same_step else info
        reported = {key: last.get(f"_{key}", True) for key in SUCCESS_KEYS if key in last}
        for i in map(int, np.flatnonzero(done if reported else truncated & same_step)):
            keys = [key for key, which in reported.items() if np.broadcast_to(which, self.num_columns)[i]]
            rows.success[t, i] = reported_success({key: last[key] if np.ndim(last[key]) == 0 else last[key][i] for key in keys})
            if same_step and truncated[i]:
                if (final := final_observation(info, i)) is None:
                    raise EnvError(
                        f'{self.spec.env_id} declares same-step autoreset and returned no info["final_obs"] for a truncated episode: '
                        "expected its final observation."
                    )
                check_observation(final, self.leaves, lambda i=i: f'{self.where(i)}, in info["final_obs"],')
                self.write(rows.final_observation, i, final)
        if not same_step:
            for array, seen in zip(rows.final_observation, rows.observation, strict=True):
                array[truncated] = seen[t + 1, truncated]
        if self.mode == "next_step":
            rows.valid[t + 1] = ~done
            return
        rows.episode_start[t + 1] = done
        if self.mode == "disabled":
            self.call = "reset"
            fresh, info = self.env.reset(options={"reset_mask": np.array(done)})
            if self.steps <= STRICT_STEPS or not self.fits(fresh):
                check_observation(fresh, self.batched, self.where, np.flatnonzero(done).tolist())
            # Environments that were not reset keep the observation of their step.
            for array, leaf in zip(rows.observation, self.leaves, strict=True):
                array[t + 1, done] = np.asarray(leaf.of(fresh))[done]
        self.lives[done] = self._reported_lives(info)[done]

    def _reported_lives(self, info: dict[str, Any]) -> np.ndarray:
        """The lives of each environment; the last ones where ``info`` reports none."""
        if not self.spec.life_loss or "lives" not in info:
            return self.lives
        return np.where(info.get("_lives", True), info["lives"], self.lives)

    def where(self, number=None):
        which = "" if number is None else f" of environment {self.first + number}"
        return f"{self.spec.env_id}.{self.call}{which} (seed {self.seed}, {self.steps} steps)"

    def close(self) -> None:
        """Close the environment, even if this raises."""
        with contextlib.suppress(Exception):
            self.env.close()
