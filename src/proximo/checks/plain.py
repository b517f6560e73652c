"""Checks of one plain environment, and of several of it side by side in this process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np

from proximo.checks import gymnasium_checker, rows
from proximo.checks.finding import Finding, error, judged, ok, warning
from proximo.checks.play import (
    Episode,
    Row,
    Streams,
    begin,
    episodes_of,
    first_difference,
    mask_in,
    play,
    play_pool,
    stacked,
    step,
)
from proximo.envs.host.environment import HostEnvironment
from proximo.envs.host.observations import Leaf, allowed_action, hold_observation, hold_step, leaves
from proximo.envs.host.pool import InProcess
from proximo.envs.host.slab import Layout
from proximo.runtime import cores
from proximo.users_code import users_code

STEPS = 300
SEED_STEPS = 100
MOST_STEPS = 20_000
END_SECONDS = 4.0
POOL_ENVS = 3
POOL_STEPS = 100

OBSERVATION_FIX = "Return what the space says, or declare the space that it returns."
REWARD_FIX = "Return float(reward)."
FLAGS_FIX = "Return bool(terminated), bool(truncated)."
INFO_FIX = "Return {} where there is nothing to tell."
SEED_FIX = "Call super().reset(seed=seed) and draw from self.np_random only, not from numpy's or Python's global generator."


def look(env: HostEnvironment, num_envs: int) -> list[Finding]:
    """All checks of a plain environment."""
    one = _made(env)
    try:
        played = play(one, env.id, env.action_space, STEPS)
        findings = protocol(played, leaves(env.observation_space), env.id)
        findings += gymnasium_checker.look(one, [row.observation for row in played])
        if any(f.level == "error" for f in findings):
            return findings
        findings += streams_of_one(env, one, played)
        findings += contents(env, one, played)
    finally:
        with contextlib.suppress(Exception):
            one.close()
    return [*findings, *side_by_side(env, findings), sendable(env), speed(env, num_envs)]


def _made(env: HostEnvironment) -> Any:
    assert env.make is not None
    with users_code(f"Making {env.id}"):
        return env.make()


def protocol(played: list[Row], expected: list[Leaf], env_id: str) -> list[Finding]:
    """Whether every part of every row is what Gymnasium's interface says."""
    steps = [(n, row) for n, row in enumerate(played) if not row.first]

    def each(hold: Callable[[Row, str], None]) -> None:
        for number, row in steps:
            hold(row, f"{env_id}.step (row {number} of a random play)")

    def observations() -> str:
        for number, row in enumerate(played):
            hold_observation(
                row.observation, expected, f"{env_id}.{'reset' if row.first else 'step'} (row {number} of a random play)"
            )
        kinds = ", ".join(f"{leaf.name} {leaf.space}".strip() for leaf in expected)
        return f"{len(played)} fit their space in shape, type and kind, and are finite: {kinds}."

    def rewards() -> str:
        each(lambda row, where: hold_step(row.reward, False, False, {}, where))
        values = [float(row.reward) for _, row in steps]
        return f"All are finite numbers, {min(values):.4g} … {max(values):.4g}."

    def flags() -> str:
        each(lambda row, where: hold_step(0.0, row.terminated, row.truncated, {}, where))
        return "terminated and truncated are True or False."

    def infos() -> str:
        for row in played:
            hold_step(0.0, False, False, row.info, f"{env_id}.{'reset' if row.first else 'step'}")
        return "It is a dict."

    return [
        judged("observations", observations, OBSERVATION_FIX),
        judged("rewards", rewards, REWARD_FIX),
        judged("flags", flags, FLAGS_FIX),
        judged("info", infos, INFO_FIX),
    ]


def streams_of_one(env: HostEnvironment, one: Any, played: list[Row]) -> list[Finding]:
    """Whether a seed repeats an episode, in the same instance and in another, and whether another seed gives another one."""
    expected = leaves(env.observation_space)
    again = play(one, env.id, env.action_space, SEED_STEPS)
    fresh = _made(env)
    try:
        elsewhere = play(fresh, env.id, env.action_space, SEED_STEPS)
        other = play(fresh, env.id, env.action_space, SEED_STEPS, seed=1)
    finally:
        fresh.close()
    steps = min(len(again), len(elsewhere), len(other), len(played)) - 1
    return [_repeats(first_difference(played, elsewhere, expected), first_difference(played, again, expected), steps),
            _differs(first_difference(elsewhere, other, expected), steps)]  # fmt: skip


def _repeats(elsewhere: int | None, again: int | None, steps: int) -> Finding:
    if elsewhere is not None:
        return warning(
            "seeding",
            f"Two instances with the same seed and the same actions differ from row {elsewhere} on: the seed is ignored, or not all "
            f"random numbers follow from it, so that no run can be repeated. {SEED_FIX}",
        )
    if again is not None:
        return warning(
            "seeding",
            f"A second reset with the same seed gives other rows from row {again} on, where a new instance gives the same: "
            "something outlives reset. Set all of the state anew in reset.",
        )
    return ok("seeding", f"The same seed gives the same {steps} rows, in the same instance and in another.")


def _differs(difference: int | None, steps: int) -> Finding:
    if difference is None:
        return warning(
            "seeds differ",
            f"Seeds 0 and 1 give the same {steps} rows: either nothing is random here, which is fine if it is meant (all "
            f"environments then start alike), or reset ignores its seed. {SEED_FIX}",
        )
    return ok("seeds differ", "Another seed gives other episodes.")


def contents(env: HostEnvironment, one: Any, played: list[Row]) -> list[Finding]:
    """What the rows hold: ranges, masks, ends; and whether what was returned is changed later."""
    expected = leaves(env.observation_space)
    arrays = stacked(played, expected)
    ended, infos = episodes_of(played), [row.info for row in played]
    acted = np.array([row.first or not (np.any(row.terminated) or np.any(row.truncated)) for row in played])
    limit = env.rules.max_episode_steps or _own_limit(one)
    steps, late = sum(not row.first for row in played), False
    if not ended and not limit:
        ended, further, late = until_end(env, one)
        steps = max(steps, further)
    return [
        rows.ranges(expected, arrays),
        *rows.masks(expected, arrays, env.action_space, acted),
        rows.ends(ended, steps, limit, by_seconds=late),
        rows.time_limits(ended, infos),
    ]


def _own_limit(one: Any) -> int | None:
    return getattr(getattr(one, "spec", None), "max_episode_steps", None)


def until_end(env: HostEnvironment, one: Any) -> tuple[list[Episode], int, bool]:
    """Play until an episode ends, for so many steps and seconds at most: the episode, the steps, whether time ran out."""
    observation, _ = begin(one, env.id, 0)
    rng, started = np.random.default_rng(0), time.perf_counter()
    for t in range(1, MOST_STEPS + 1):
        observation, _, terminated, truncated, _ = step(one, env.id, allowed_action(env.action_space, rng, mask_in(observation)))
        if terminated or truncated:
            return [Episode(t, bool(terminated), bool(truncated))], t, False
        if time.perf_counter() - started > END_SECONDS:
            return [], t, True
    return [], MOST_STEPS, False


def side_by_side(env: HostEnvironment, findings: list[Finding]) -> list[Finding]:
    """Whether several environments in one process have streams of their own, and leave each other alone."""
    if any(f.check in ("seeding", "seeds differ") and f.level != "ok" for f in findings):
        return []  # said already
    return [judged("side by side", lambda: _side_by_side(_pool_streams(env, POOL_ENVS), _pool_streams(env, 1)))]


def _side_by_side(several: Streams, alone: Streams) -> Finding:
    if several.twins() is not None:
        first, second = several.twins() or (0, 0)
        return error(
            "side by side",
            f"Environments {first} and {second}, with seeds of their own, gave the same {len(several.reward)} steps: each must draw "
            f"from a generator of its own. {SEED_FIX}",
        )
    if not several.equals(alone, column=0):
        return error(
            "side by side",
            "An environment gives other steps beside others in the same process than alone, with the same seed and actions: they "
            "share something (a global, an attribute of the class, numpy's global generator). Keep all state in self.",
        )
    return ok("side by side", f"{several.reward.shape[1]} in one process give streams of their own, and leave each other alone.")


def _pool_streams(env: HostEnvironment, num_envs: int) -> Streams:
    assert env.make is not None
    layout = Layout(POOL_STEPS, num_envs, env.observation_space, env.action_space, 1)
    pool = InProcess(env.make, layout, env.rules)
    try:
        return play_pool(pool, env.observation_space, env.action_space)
    finally:
        pool.close()


def sendable(env: HostEnvironment) -> Finding:
    """Whether what makes the environment can be sent to worker processes."""
    try:
        size = len(cloudpickle.dumps(env.make))
    except Exception as raised:
        return warning(
            "workers",
            f"What makes it cannot be sent to worker processes ({type(raised).__name__}: {' '.join(str(raised).split())}): train with "
            "--num-workers 0, or keep open files, locks and generators out of its arguments.",
        )
    return ok("workers", f"What makes it can be sent to worker processes ({size:,} bytes).")


def speed(env: HostEnvironment, num_envs: int) -> Finding:
    """Steps per second in this process, and where a training would step."""

    def measured() -> str:
        alone = f"{1 / env.step_seconds():,.0f} steps/s of one in this process"
        if env.make_vector is not None:
            return f"{alone}; a training uses its vectorised form, unless num_workers, overlap or stagger_steps ask for this one."
        workers = env.choose_workers(num_envs, 1, cores())
        where = f"in {workers} worker processes" if workers else "in this process, which is as fast as workers or faster"
        return f"{alone}; {num_envs} environments would step {where}."

    return judged("speed", measured)
