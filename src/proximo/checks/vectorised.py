"""Checks of an environment that vectorises itself."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from proximo.checks import rows
from proximo.checks.autoreset import autoreset, fillers
from proximo.checks.finding import Finding, error, judged, ok, warning
from proximo.checks.play import Episode, Streams, mask_in, play_pool
from proximo.envs.host.environment import HostEnvironment
from proximo.envs.host.observations import allowed_actions, leaves
from proximo.envs.host.slab import Layout
from proximo.envs.host.vector import VectorPool, autoreset_of
from proximo.users_code import users_code

NUM_ENVS = 3
STEPS = 200
SPEED_SECONDS = 0.3
MOST_STEPS = 20_000
END_SECONDS = 4.0
LIMIT_FIX = "Give it a time limit of its own, by its parameters in --env-settings."


def look(env: HostEnvironment, num_envs: int) -> list[Finding]:
    """All checks of an environment that vectorises itself; their names begin with "vectorised"."""
    reset = judged("autoreset", lambda: autoreset(env))
    if reset.level == "error":
        return [_named(reset)]
    first = _streams(env)  # raises what is wrong with shapes, types, numbers
    again, others = _streams(env), _streams(env, fillers_seed=1)
    other = _streams(env, seed=1)
    expected = leaves(env.observation_space)
    flat = [array.reshape(-1, *array.shape[2:]) for array in first.observation]
    found = [
        ok("steps", f"{NUM_ENVS} environments in {STEPS} steps gave what their spaces say, finite rewards, and flags."),
        _seeding(first, again, other),
        *(fillers(env, first, again, others) or [reset]),
        rows.ranges(expected, flat),
        *rows.masks(expected, flat, env.action_space, rows.acted_on(first.terminated | first.truncated)),
        _ends(env, first.episodes()),
        rows.time_limits(first.episodes()),
        judged("speed", lambda: _speed(env, num_envs)),
    ]
    return [_named(f) for f in found]


def _named(finding: Finding) -> Finding:
    return Finding(f"vectorised {finding.check}", finding.level, finding.says)


def _streams(env: HostEnvironment, seed: int = 0, fillers_seed: int = 0) -> Streams:
    assert env.make_vector is not None
    with users_code(f"Making {env.id}"):
        pool = VectorPool(
            env.make_vector, Layout(STEPS, NUM_ENVS, env.observation_space, env.action_space, 1), env.rules, env.action_space
        )
    try:
        return play_pool(pool, env.observation_space, env.action_space, seed, fillers_seed)
    finally:
        pool.close()


def _seeding(first: Streams, again: Streams, other: Streams) -> Finding:
    if not first.equals(again):
        return warning(
            "seeding",
            "The same seed and the same actions gave other steps: the seed is ignored, or not all random numbers follow from it, so "
            "that no run can be repeated. Draw all of them from a generator that reset(seed=...) makes.",
        )
    pair = first.twins()
    if pair is not None and not first.equals(other):
        return error(
            "seeding",
            f"Environments {pair[0]} and {pair[1]} gave the same {len(first.reward)} steps, though another seed gives others: give "
            "each environment a generator of its own, with a seed of its own that follows from reset's.",
        )
    if first.equals(other):
        return warning(
            "seeding",
            f"Seeds 0 and 1 give the same {len(first.reward)} steps: either nothing is random here, which is fine if it is meant, "
            "or reset ignores its seed.",
        )
    return ok("seeding", "The same seed gives the same steps; other seeds and other environments give other ones.")


def _ends(env: HostEnvironment, ended: list[Episode]) -> Finding:
    """Whether an episode ends; played on where none did."""
    assert env.make_vector is not None
    steps, started = STEPS, time.perf_counter()
    if not ended:
        made, rng = env.make_vector(NUM_ENVS), np.random.default_rng(0)
        limit = getattr(getattr(made, "spec", None), "max_episode_steps", None)
        try:
            observation, _ = made.reset(seed=0)
            for steps in range(1, MOST_STEPS + 1):
                actions = allowed_actions(env.action_space, rng, mask_in(observation), NUM_ENVS)
                observation, _, terminated, truncated, _ = made.step(actions)
                ended = [Episode(steps, bool(a), bool(b)) for a, b in zip(terminated, truncated, strict=True) if a or b]
                if ended or time.perf_counter() - started > END_SECONDS:
                    break
        finally:
            made.close()
        return rows.ends(ended, steps * NUM_ENVS, limit, LIMIT_FIX, by_seconds=steps < MOST_STEPS)
    return rows.ends(ended, steps * NUM_ENVS, None)


def _speed(env: HostEnvironment, num_envs: int) -> str:
    assert env.make_vector is not None
    made: Any = env.make_vector(num_envs)
    disabled = autoreset_of(made, env.id) == "disabled"
    rng = np.random.default_rng(0)
    try:
        with users_code(f"{env.id}.step"):
            observation, _ = made.reset(seed=0)
            started, steps = time.perf_counter(), 0
            while time.perf_counter() - started < SPEED_SECONDS:
                actions = allowed_actions(env.action_space, rng, mask_in(observation), num_envs)
                observation, _, terminated, truncated, _ = made.step(actions)
                done = np.asarray(terminated) | np.asarray(truncated)
                if disabled and done.any():
                    observation, _ = made.reset(options={"reset_mask": done})
                steps += 1
            seconds = time.perf_counter() - started
    finally:
        made.close()
    return f"{steps * num_envs / seconds:,.0f} steps/s with {num_envs} environments, by random actions."
