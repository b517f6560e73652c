"""Checks whether a vector environment resets as it declares: in the next step, in the same step, or not at all."""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from proximo.checks.finding import Finding, error, ok
from proximo.checks.random_play import Streams, made, mask_in, reset, step
from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.actions import allowed_actions
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.observations import final_observation, leaves
from proximo.envs.gymnasium.vector_env_adapter import Autoreset, autoreset_of

NUM_ENVS = 3
MAX_STEPS = 3000
MAX_SECONDS = 3.0
ENOUGH_ENDS = 12
MODE_NAMES = {"next_step": "NextStep", "same_step": "SameStep", "disabled": "Disabled"}
DECLARE = 'declare the mode that it uses in metadata["autoreset_mode"]'


def check_autoreset(env: GymnasiumEnvironment) -> Finding:
    """Play until episodes end, and check what the environment returns then."""
    with _several(env) as (several, mode), custom_code_errors(f"{env.id}, in the mode {MODE_NAMES[mode]},"):
        ended, fault = _watch(several, mode, env)
    if fault:
        return _broken(env, mode, fault)
    if not ended:
        return ok("autoreset", f"{MODE_NAMES[mode]} is declared; no episode ended during this check.")
    return ok("autoreset", f"It resets as it declares ({MODE_NAMES[mode]}), at {ended} episode ends.")


def check_autoreset_actions(env: GymnasiumEnvironment, first: Streams, again: Streams, others: Streams) -> list[Finding]:
    """Check that autoreset steps ignore their actions, if the environment declares next-step autoreset.

    ``first`` and ``again`` are plays with the same seed and actions. ``others`` has other actions in autoreset steps.
    """
    with _several(env) as (_, mode):
        pass
    if mode != "next_step" or not first.equals(again) or first.equals(others):
        return []
    fault = "the step after an episode's end, which must only reset, uses its action: episodes begin one step early"
    return [_broken(env, mode, fault)]


@contextlib.contextmanager
def _several(env: GymnasiumEnvironment) -> Iterator[tuple[Any, Autoreset]]:
    """A vector environment of ``NUM_ENVS`` environments, and its mode."""
    assert env.make_vector is not None
    with made(functools.partial(env.make_vector, NUM_ENVS), env.id) as several:
        yield several, autoreset_of(several, env.id)


def _broken(env: GymnasiumEnvironment, mode: Autoreset, fault: str) -> Finding:
    return error("autoreset", f"{env.id} declares {MODE_NAMES[mode]}, but {fault}. Fix this, or {DECLARE}.")


def _watch(made: Any, mode: Autoreset, env: GymnasiumEnvironment) -> tuple[int, str]:
    """The number of episode ends seen, and the fault of one of them, or an empty string."""
    rng, started, ended = np.random.default_rng(0), time.perf_counter(), 0
    check = {"next_step": _next_step, "same_step": _same_step, "disabled": _disabled}[mode]
    expected = leaves(env.observation_space)
    done = np.zeros(NUM_ENVS, bool)
    observation, _ = reset(made, env.id, 0)
    for _ in range(MAX_STEPS):
        before = done
        result = step(made, env.id, allowed_actions(env.action_space, rng, mask_in(observation), NUM_ENVS))
        observation = result[0]
        done = np.asarray(result[2]) | np.asarray(result[3])
        ended += int((done & ~before).sum())
        fresh = None
        if mode == "disabled" and done.any():
            result = (copy.deepcopy(observation), *result[1:])
            fresh = made.reset(options={"reset_mask": done.copy()})
        fault = check(fresh, expected, before, done, result)
        if fault or ended >= ENOUGH_ENDS or time.perf_counter() - started > MAX_SECONDS:
            return ended, fault
        if fresh is not None:
            observation = fresh[0]
        if mode == "next_step":
            done = done & ~before
    return ended, ""


def _next_step(fresh: Any, expected: Any, before: Any, done: Any, result: Any) -> str:
    """An autoreset step has no reward and does not end an episode, and no info has a final observation."""
    _, reward, terminated, truncated, info = result
    if before.any():
        if np.asarray(reward)[before].any():
            return f"the step after an episode's end has the reward {np.asarray(reward)[before][0]:.4g}: expected 0, because it only resets"
        if (np.asarray(terminated) | np.asarray(truncated))[before].any():
            return "the step after an episode's end ends another episode: expected a step that only resets"
    if done.any() and isinstance(info, dict) and ("final_obs" in info or "final_observation" in info):
        return "its info has a final observation, as in same-step autoreset"
    return ""


def _same_step(fresh: Any, expected: Any, before: Any, done: Any, result: Any) -> str:
    """``info`` has the true final observation, which differs from the first one of the next episode."""
    if not done.any():
        return ""
    observation, info = result[0], result[4]
    if "final_obs" not in info:
        return 'an episode ended without info["final_obs"]: expected its last observation there'
    same = []
    for i in np.flatnonzero(done):
        final = final_observation(info, i)
        if final is None:
            return f'info["final_obs"] has nothing for environment {i}, whose episode ended'
        same.append(all(np.array_equal(leaf.of(final), leaf.of(observation)[i]) for leaf in expected))
    if all(same) and len(same) > 1:
        return 'the observation of a step that ends an episode is the one in info["final_obs"]: expected the first one of the next episode'
    return ""


def _disabled(fresh: Any, expected: Any, before: Any, done: Any, result: Any) -> str:
    """A reset with ``reset_mask`` does not change the other environments."""
    if not done.any():
        return ""
    old = [np.array(leaf.of(result[0])) for leaf in expected]
    if not isinstance(fresh, tuple) or len(fresh) != 2:
        return 'reset(options={"reset_mask": ...}) does not return a pair (observation, info)'
    new = [np.asarray(leaf.of(fresh[0])) for leaf in expected]
    if any(not np.array_equal(a[~done], b[~done]) for a, b in zip(old, new, strict=True)):
        return 'reset(options={"reset_mask": ...}) changed environments that the mask does not select'
    return ""
