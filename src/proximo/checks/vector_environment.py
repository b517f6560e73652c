"""All checks of a vector environment that the user or a library supplies."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from proximo.checks.action_mask import check_action_mask, check_unused_mask, is_acted_on
from proximo.checks.autoreset import check_autoreset, check_autoreset_actions
from proximo.checks.episode_ends import check_ends, check_time_limit
from proximo.checks.finding import Finding, ok, run_check
from proximo.checks.random_play import Episode, Streams, made, mask_in, play_vector_env, reset, step
from proximo.checks.ranges import check_ranges
from proximo.checks.scale import Seen, check_scale
from proximo.checks.seeding import check_vector_seeding
from proximo.config import Config
from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.action_masks import FIX, layers
from proximo.envs.gymnasium.actions import allowed_actions
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.observations import leaves
from proximo.envs.gymnasium.rollout_buffer import BufferLayout
from proximo.envs.gymnasium.vector_env_adapter import VectorEnvAdapter

NAMES = tuple(f"vectorized {name}" for name in ("autoreset", "steps", "seeding", "range", "episodes", "time limit", "speed"))
NUM_ENVS = 3
STEPS = 200
MAX_STEPS = 20_000
END_SECONDS = 4.0
LIMIT_FIX = "Set its own time limit, with a parameter in --env-settings."


def check(env: GymnasiumEnvironment, config: Config) -> Iterator[Finding]:
    """Run all checks of a vector environment, as in ``check_environment``. The names of findings begin with "vectorized"."""
    for finding in _check(env, config):
        yield Finding(f"vectorized {finding.check}", finding.level, finding.message)


def _check(env: GymnasiumEnvironment, config: Config) -> Iterator[Finding]:
    autoreset = run_check("autoreset", lambda: check_autoreset(env))
    if autoreset.level == "error":
        yield autoreset
        return
    first = _streams(env)  # raises an error for wrong shapes, types or numbers
    started = time.perf_counter()
    again = _streams(env)
    seconds, other_reset_actions = time.perf_counter() - started, _streams(env, autoreset_seed=1)
    other = _streams(env, seed=1)
    expected = leaves(env.observation_space)
    flat = [array.reshape(-1, *array.shape[2:]) for array in first.observation]
    yield from (
        ok("steps", f"{NUM_ENVS} environments returned valid observations, finite rewards and flags in {STEPS} steps."),
        check_vector_seeding(first, again, other),
        *(check_autoreset_actions(env, first, again, other_reset_actions) or [autoreset]),
        check_ranges(expected, flat),
        *check_scale(env.observation_space, Seen(flat, first.reward[first.valid]), config),
        *check_action_mask(expected, flat, env.action_space, is_acted_on(first.terminated | first.truncated)),
        *_unused_mask(env),
        _ends(env, first.episodes()),
        check_time_limit(first.episodes(), [first.reward[first.valid]], first.terminated[first.valid]),
        ok("speed", f"{STEPS * NUM_ENVS / seconds:,.0f} steps/s with {NUM_ENVS} environments and random actions."),
    )


def _streams(env: GymnasiumEnvironment, seed: int = 0, autoreset_seed: int = 0) -> Streams:
    assert env.make_vector is not None
    with custom_code_errors(f"Making {env.id}"):
        layout = BufferLayout(STEPS, NUM_ENVS, env.observation_space, env.action_space, 1)
        vector_env = VectorEnvAdapter(env.make_vector, layout, env.spec)
    try:
        return play_vector_env(vector_env, env.observation_space, env.action_space, seed, autoreset_seed)
    finally:
        vector_env.close()


def _made(env: GymnasiumEnvironment, num_envs: int) -> contextlib.AbstractContextManager[Any]:
    assert env.make_vector is not None
    return made(functools.partial(env.make_vector, num_envs), env.id)


def _unused_mask(env: GymnasiumEnvironment) -> list[Finding]:
    with _made(env, 1) as one:
        _, info = reset(one, env.id, 0)
        return check_unused_mask(list(layers(one)), info, leaves(env.observation_space), env.action_space, FIX)


def _ends(env: GymnasiumEnvironment, ended: list[Episode]) -> Finding:
    """Check that episodes end. Plays on if none of those ``ended`` did."""
    if ended:
        return check_ends(ended, STEPS * NUM_ENVS, None)
    rng, started, steps = np.random.default_rng(0), time.perf_counter(), 0
    with _made(env, NUM_ENVS) as several:
        limit = getattr(getattr(several, "spec", None), "max_episode_steps", None)
        observation, _ = reset(several, env.id, 0)
        while not ended and steps < MAX_STEPS and time.perf_counter() - started < END_SECONDS:
            steps += 1
            actions = allowed_actions(env.action_space, rng, mask_in(observation), NUM_ENVS)
            observation, _, terminated, truncated, _ = step(several, env.id, actions)
            ended = [Episode(steps, bool(a), bool(b)) for a, b in zip(terminated, truncated, strict=True) if a or b]
    return check_ends(ended, steps * NUM_ENVS, limit, LIMIT_FIX, out_of_time=steps < MAX_STEPS)
