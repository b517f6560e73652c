"""The quick check before a training: a reset and some steps of one environment."""

from __future__ import annotations

import time
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from proximo.checks.gymnasium_environment import make_one
from proximo.checks.interface import check_interface
from proximo.checks.jax_play import check_numbers, flat_observations, jax_plays
from proximo.checks.jax_transforms import TRACE_FIX
from proximo.checks.random_play import Transition, first_difference, play, rewards_of, stacked_observations, transitions
from proximo.checks.scale import Seen
from proximo.collect import jax_vector
from proximo.config import Config
from proximo.config.schema import OF_PRESET
from proximo.custom_code import custom_code_errors
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.instances import innermost
from proximo.envs.gymnasium.observations import Leaf, leaves
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvError, command
from proximo.spaces import from_any

STEPS = 8
MAX_STEPS = 100
SECONDS = 0.1
NUM_ENVS = 4
CHANGE_ENVIRONMENT = (
    "env_settings", "levels", "normalize_observation", "clip_observation", "normalize_reward", "reward_scale", "clip_reward",
)  # fmt: skip
"""Settings that change a JAX environment, or the scale of what the learner reads."""


class QuickCheck(NamedTuple):
    """The result of the quick check of an environment without faults."""

    warnings: list[str]
    """One sentence each."""
    seen: Seen | None
    """What the random steps returned. None if there were none."""


def trains_as_in_preset(config: Config) -> bool:
    """Whether the environment has a preset, and no other setting changes the environment or the scale of what the learner reads. Its random
    steps are then known."""
    preset = OF_PRESET.format(config.env.id)
    return preset in config.origins.values() and all(config.origins.get(name, preset) == preset for name in CHANGE_ENVIRONMENT)


def _more(env_id: str) -> str:
    return f"`{command('proximo', 'check', env_id)}` reports the details."


def quick_check(env: JaxEnvironment | GymnasiumEnvironment, env_id: str, plays: bool = True) -> QuickCheck:
    """Check the first ``STEPS`` random steps of ``env``, and return about ``MAX_STEPS`` steps, or as many as ``SECONDS`` allow.

    Environments that exist only as vector environments are not checked here: making EnvPool or ALE takes long, and training checks
    their first thousand steps.

    Args:
        env: The environment.
        env_id: Its id, for messages.
        plays: Whether JAX environments play random steps. Otherwise reset and step are only traced.

    Raises:
        EnvError: The environment cannot be trained.
    """
    if not isinstance(env, GymnasiumEnvironment):
        return QuickCheck([], _check_jax(env, env_id, plays))
    return QuickCheck([], None) if env.make is None else _check_gymnasium(env, env_id)


def _check_gymnasium(env: GymnasiumEnvironment, env_id: str) -> QuickCheck:
    expected = leaves(env.observation_space)
    with make_one(env) as one:
        first = play(one, env_id, env.action_space, STEPS, seconds=SECONDS)
        if wrong := _wrong(first, expected, env_id):
            raise EnvError(f"{wrong} {_more(env_id)}")
        again: list[Transition] = []
        try:
            for transition in transitions(one, env_id, env.action_space, MAX_STEPS, seconds=SECONDS):
                again.append(transition)  # what came before a fault is kept
        except EnvError:
            if len(again) < len(first):
                raise  # a later fault ends the training, which reports its step
    differs = f"{env_id} gives different steps for the same seed and actions, so no run on it can be repeated. {_more(env_id)}"
    repeats = first_difference(first, again, expected) is None
    seen = None if _wrong(again, expected, env_id) else Seen(stacked_observations(again, expected), rewards_of(again))
    # An environment whose constructor sets no render_mode may draw without it.
    unseen = env.without_render_mode(one) if "render_mode" in getattr(innermost(one), "__dict__", {}) else ""
    return QuickCheck([*([] if repeats else [differs]), *([unseen] if unseen else [])], seen)


def _wrong(played: list[Transition], expected: list[Leaf], env_id: str) -> str | None:
    """The first violation of Gymnasium's interface in the transitions, if any."""
    return next((f.message for f in check_interface(played, expected, env_id) if f.level == "error"), None)


def _check_jax(env: JaxEnvironment, env_id: str, plays: bool) -> Seen | None:
    try:
        jax_vector.check_env(env, env_id)
    except EnvError as fault:
        traced = isinstance(fault.__cause__, jax.errors.JAXTypeError | jax.errors.UnexpectedTracerError)
        raise EnvError(f"{fault} {TRACE_FIX}" if traced else str(fault)) from fault
    if not plays:
        return None
    with custom_code_errors(env_id):
        first, later, reward = _short_jax(env)
    observations = flat_observations(first, later)
    start = [x[: (STEPS + 1) * NUM_ENVS] for x in observations]  # a later fault is reported during the training
    check_numbers(start, reward[:STEPS], from_any(env.observation_space, "observation"), env_id)
    return Seen(observations, reward)


def _short_jax(env: JaxEnvironment) -> tuple[PyTree, PyTree, np.ndarray]:
    """Play random steps, ``STEPS`` at a time. Return the observations of a reset, ``[N, ...]``, those of the steps, ``[T, N, ...]``, and the
    rewards, ``[T, N]``."""
    play = jax_plays(env, NUM_ENVS, STEPS, brief=True)
    first, played, started = next(play), [], 0.0
    while len(played) * STEPS < MAX_STEPS and (not played or time.perf_counter() - started < SECONDS):
        played.append(next(play)[:2])
        started = started or time.perf_counter()  # compiling does not count
    later, reward = jax.tree.map(lambda *parts: np.concatenate(parts), *played)
    return first, later, reward
