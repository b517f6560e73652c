"""All checks of a single Gymnasium environment."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from proximo.checks import gymnasium_checker
from proximo.checks.action_mask import check_action_mask, check_unused_mask
from proximo.checks.episode_ends import check_ends, check_time_limit
from proximo.checks.finding import Finding, ok, run_check, warning
from proximo.checks.interface import check_interface
from proximo.checks.random_play import (
    Episode,
    Transition,
    episodes_of,
    first_difference,
    made,
    play,
    rewards_of,
    stacked_observations,
    transitions,
)
from proximo.checks.ranges import check_ranges
from proximo.checks.scale import Seen, check_scale
from proximo.checks.seeding import check_repeats, check_seeds_differ
from proximo.checks.side_by_side import check_side_by_side
from proximo.config import Config
from proximo.envs.gymnasium.action_masks import FIX, layers
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.observations import leaves
from proximo.envs.gymnasium.workers import pickled
from proximo.errors import EnvError
from proximo.jax_setup import cores

NAMES = (
    "observations", "rewards", "flags", "info", "Gymnasium", "seeding", "seeds differ", "range", "observation scale", "reward scale",
    "episodes", "time limit", "side by side", "workers", "speed",
)  # fmt: skip
STEPS = 300
SEED_STEPS = 100
MAX_STEPS = 20_000
END_SECONDS = 4.0


def check(env: GymnasiumEnvironment, config: Config) -> Iterator[Finding]:
    """Run all checks of a single environment, as in ``check_environment``."""
    with make_one(env) as one:
        started = time.perf_counter()
        played = play(one, env.id, env.action_space, STEPS)
        step_seconds = (time.perf_counter() - started) / len(played)
        interface = check_interface(played, leaves(env.observation_space), env.id)
        yield from interface
        yield from gymnasium_checker.check(one, [transition.observation for transition in played])
        if any(f.level == "error" for f in interface):
            return
        seeding = _seeding(env, one, played)
        yield from seeding
        yield from _contents(env, one, played, config)
    if all(f.level == "ok" for f in seeding):
        yield run_check("side by side", lambda: check_side_by_side(env, step_seconds))
    yield _workers(env)
    yield run_check("speed", lambda: _speed(env, config.env.num_envs, step_seconds))


def make_one(env: GymnasiumEnvironment) -> contextlib.AbstractContextManager[Any]:
    """One environment, which is closed at the end. Raises ``EnvError`` if it cannot be made."""
    assert env.make is not None
    return made(env.make, env.id)


def _seeding(env: GymnasiumEnvironment, one: Any, played: list[Transition]) -> list[Finding]:
    expected = leaves(env.observation_space)
    again = play(one, env.id, env.action_space, SEED_STEPS)
    with make_one(env) as new:
        in_new_instance = play(new, env.id, env.action_space, SEED_STEPS)
        other_seed = play(new, env.id, env.action_space, SEED_STEPS, seed=1)
    steps = min(len(again), len(in_new_instance), len(other_seed), len(played)) - 1
    return [
        check_repeats(first_difference(played, in_new_instance, expected), first_difference(played, again, expected), steps),
        check_seeds_differ(first_difference(in_new_instance, other_seed, expected), steps),
    ]


def _contents(env: GymnasiumEnvironment, one: Any, played: list[Transition], config: Config) -> list[Finding]:
    """Checks of ranges, scale, masks and ends of episodes."""
    expected = leaves(env.observation_space)
    observations = stacked_observations(played, expected)
    ended, infos = episodes_of(played), [transition.info for transition in played]
    is_step = np.array([not t.episode_start for t in played])
    terminated, truncated = (np.array([bool(np.any(getattr(t, name))) for t in played]) for name in ("terminated", "truncated"))
    values = [rewards_of(played), *(array[is_step] for array in observations)]
    limit = env.spec.max_episode_steps or getattr(getattr(one, "spec", None), "max_episode_steps", None)
    steps, out_of_time = int(is_step.sum()), False
    if not ended and not limit:
        ended, further, out_of_time = _play_to_an_end(env, one)
        steps = max(steps, further)
    return [
        check_ranges(expected, observations),
        *check_scale(env.observation_space, Seen(observations, rewards_of(played)), config),
        *check_action_mask(expected, observations, env.action_space, ~(terminated | truncated)),
        *check_unused_mask(list(layers(one)), infos[0] | infos[1], expected, env.action_space, FIX),
        check_ends(ended, steps, limit, out_of_time=out_of_time),
        check_time_limit(ended, values, terminated[is_step], infos),
    ]


def _play_to_an_end(env: GymnasiumEnvironment, one: Any) -> tuple[list[Episode], int, bool]:
    """Play until an episode ends. Returns that episode if one ended, the number of steps, and whether time ran out."""
    steps = 0
    for steps, played in enumerate(transitions(one, env.id, env.action_space, MAX_STEPS, seconds=END_SECONDS)):
        if played.terminated or played.truncated:
            return [Episode(steps, bool(played.terminated), bool(played.truncated))], steps, False
    return [], steps, steps < MAX_STEPS


def _workers(env: GymnasiumEnvironment) -> Finding:
    assert env.make is not None
    try:
        size = len(pickled(env.make, env.id))
    except EnvError as fault:
        return warning("workers", str(fault))
    return ok("workers", f"The function that makes the environment can be sent to worker processes ({size:,} bytes).")


def _speed(env: GymnasiumEnvironment, num_envs: int, seconds: float) -> str:
    """Steps per second of one environment, and where a training would step them."""
    alone = f"{1 / seconds:,.0f} steps/s with one environment in this process"
    if env.make_vector is not None:
        return f"{alone}; training uses its vector environment, unless num_workers, overlap or stagger_steps ask for single ones."
    workers = env.default_workers(num_envs, 1, cores())
    where = f"in {workers} worker processes (--num-workers 0: in this process)" if workers else "in this process"
    return f"{alone}; training would step {num_envs} environments {where}."
