"""Whether a vectorised environment resets as it declares: in the next step, in the same step, or not at all."""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np

from proximo.checks.finding import Finding, error, ok
from proximo.checks.play import Streams, begin, mask_in, step
from proximo.envs.host.environment import HostEnvironment
from proximo.envs.host.observations import allowed_actions, final_observation, leaves
from proximo.envs.host.vector import Autoreset, autoreset_of
from proximo.users_code import users_code

NUM_ENVS = 3
MOST_STEPS = 3000
MOST_SECONDS = 3.0
ENOUGH = 12
WRITTEN = {"next_step": "NextStep", "same_step": "SameStep", "disabled": "Disabled"}
DECLARE = 'declare what it does in metadata["autoreset_mode"]'


def autoreset(env: HostEnvironment) -> Finding:
    """Watch episodes end, and what is told then."""
    made, mode = _made(env)
    try:
        with users_code(f"{env.id}, in the mode {WRITTEN[mode]},"):
            ended, fault = _watch(made, mode, env)
    finally:
        made.close()
    if fault:
        return _broken(env, mode, fault)
    if not ended:
        return ok("autoreset", f"{WRITTEN[mode]} is declared; no episode ended while it was watched.")
    return ok("autoreset", f"It resets as it declares: {WRITTEN[mode]}, in {ended} ends of episodes.")


def fillers(env: HostEnvironment, first: Streams, again: Streams, others: Streams) -> list[Finding]:
    """Whether the rows that only reset ignore their actions, where it declares that they do: ``first`` and ``again`` are equal
    plays, unless the seed is ignored, and ``others`` is one with other actions in those rows."""
    made, mode = _made(env)
    made.close()
    if mode != "next_step" or not first.equals(again) or first.equals(others):
        return []
    fault = (
        "acts by the action of the row behind an episode's end, which ought only to reset: it begins its episodes a step early"
    )
    return [_broken(env, mode, fault)]


def _made(env: HostEnvironment) -> tuple[Any, Autoreset]:
    assert env.make_vector is not None
    with users_code(f"Making {env.id}"):
        made = env.make_vector(NUM_ENVS)
    return made, autoreset_of(made, env.id)


def _broken(env: HostEnvironment, mode: Autoreset, fault: str) -> Finding:
    return error("autoreset", f"{env.id} declares {WRITTEN[mode]}, but {fault}. Mend it, or {DECLARE}.")


def _watch(made: Any, mode: Autoreset, env: HostEnvironment) -> tuple[int, str]:
    """How many ends were seen, and what was wrong with one of them."""
    rng, started, ended = np.random.default_rng(0), time.perf_counter(), 0
    look = {"next_step": _next_step, "same_step": _same_step, "disabled": _disabled}[mode]
    expected = leaves(env.observation_space)
    done = np.zeros(NUM_ENVS, bool)
    observation, _ = begin(made, env.id, 0)
    for _ in range(MOST_STEPS):
        before = done
        result = step(made, env.id, allowed_actions(env.action_space, rng, mask_in(observation), NUM_ENVS))
        observation = result[0]
        done = np.asarray(result[2]) | np.asarray(result[3])
        ended += int((done & ~before).sum())
        fresh = None
        if mode == "disabled" and done.any():
            result = (copy.deepcopy(observation), *result[1:])
            fresh = made.reset(options={"reset_mask": done.copy()})
        fault = look(fresh, expected, before, done, result)
        if fault or ended >= ENOUGH or time.perf_counter() - started > MOST_SECONDS:
            return ended, fault
        if fresh is not None:
            observation = fresh[0]
        if mode == "next_step":
            done = done & ~before
    return ended, ""


def _next_step(fresh: Any, expected: Any, before: Any, done: Any, result: Any) -> str:
    """A filler row has no reward and no end, and nothing is told of a final observation."""
    _, reward, terminated, truncated, info = result
    if before.any():
        if np.asarray(reward)[before].any():
            return f"the row behind an episode's end has the reward {np.asarray(reward)[before][0]:.4g}: expected 0, for it only resets"
        if (np.asarray(terminated) | np.asarray(truncated))[before].any():
            return "the row behind an episode's end ends another one: expected a row that only resets"
    if done.any() and isinstance(info, dict) and ("final_obs" in info or "final_observation" in info):
        return "it tells a final observation in its info, as same-step autoreset does"
    return ""


def _same_step(fresh: Any, expected: Any, before: Any, done: Any, result: Any) -> str:
    """The true final observation lies in ``info``, and is another than the one that opens the next episode."""
    if not done.any():
        return ""
    observation, info = result[0], result[4]
    if "final_obs" not in info:
        return 'an episode ended without info["final_obs"], where its last observation belongs'
    same = []
    for i in np.flatnonzero(done):
        final = final_observation(info, i)
        if final is None:
            return f'info["final_obs"] has nothing for environment {i}, whose episode ended'
        same.append(all(np.array_equal(leaf.of(final), leaf.of(observation)[i]) for leaf in expected))
    if all(same) and len(same) > 1:
        return 'the observation of a step that ends an episode is the one in info["final_obs"]: expected that of a fresh episode'
    return ""


def _disabled(fresh: Any, expected: Any, before: Any, done: Any, result: Any) -> str:
    """A reset by ``reset_mask`` leaves the others alone."""
    if not done.any():
        return ""
    old = [np.array(leaf.of(result[0])) for leaf in expected]
    if not isinstance(fresh, tuple) or len(fresh) != 2:
        return 'reset(options={"reset_mask": ...}) does not return a pair (observation, info)'
    new = [np.asarray(leaf.of(fresh[0])) for leaf in expected]
    if any(not np.array_equal(a[~done], b[~done]) for a, b in zip(old, new, strict=True)):
        return 'reset(options={"reset_mask": ...}) changed environments that the mask leaves out'
    return ""
