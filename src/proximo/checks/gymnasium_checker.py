"""Runs Gymnasium's own checker; its assertions and warnings become findings."""

from __future__ import annotations

import re
import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env

from proximo.checks.finding import Finding, ok, warning
from proximo.custom_code import exception_text
from proximo.envs.gymnasium.action_masks import MaskInObservation
from proximo.envs.gymnasium.wrappers import ActionRepeat, WithBaseClass
from proximo.spaces import ACTION_MASK

NAME = "Gymnasium"
IGNORED_WRAPPERS = (
    MaskInObservation,
    ActionRepeat,
    gym.wrappers.FrameStackObservation,
    gym.wrappers.AtariPreprocessing,
    gym.wrappers.TimeLimit,
    gym.wrappers.OrderEnforcing,
    gym.wrappers.PassiveEnvChecker,
)
# Not problems here: Gymnasium warns about infinite bounds, but ``scale.py`` warns about large observations in random steps; proximo scales
# actions to their space, and adds wrappers on purpose.
IGNORED_WARNINGS = (
    "is probably too low",
    "is probably too high",
    "recommend using a symmetric and normalized space",
    "different from the unwrapped version",
    "is out of date",
)
_COLORS = re.compile(r"\x1b\[\d+m")


def without_wrappers(env: Any) -> Any:
    """``env`` without the wrappers that proximo and ``gymnasium.make`` add."""
    while isinstance(env, IGNORED_WRAPPERS):
        env = env.env
    return env


def check(env: Any, observations: list[Any]) -> list[Finding]:
    """Run the checker on ``env``, which returned ``observations``.

    Its failures are warnings only, because other checks cover what training requires.
    """
    if isinstance(env.observation_space, gym.spaces.Dict) and ACTION_MASK in env.observation_space.spaces:
        return [ok(NAME, "Skipped: Gymnasium's checker ignores action masks and would take actions that are not allowed.")]
    env = without_wrappers(env)
    if isinstance(env, WithBaseClass) or not isinstance(env, gym.Env):
        return [
            ok(NAME, "Skipped: Gymnasium's checker accepts only subclasses of gymnasium.Env, which training does not require.")
        ]
    if any(differs_in_width(env.observation_space, observation) for observation in observations):
        # Gymnasium rejects float64 for float32; a network accepts both.
        env = gym.wrappers.TransformObservation(
            env, partial(np.asarray, dtype=env.observation_space.dtype), env.observation_space
        )
    stopped = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True, skip_close_check=True)
        except Exception as raised:
            stopped = _sentence(str(raised) or exception_text(raised))
    messages = dict.fromkeys(
        _sentence(str(c.message)) for c in caught if not any(text in str(c.message) for text in IGNORED_WARNINGS)
    )
    findings = [warning(NAME, f"Gymnasium's checker warns: {text}") for text in messages]
    if stopped:
        findings.append(
            warning(
                NAME,
                f"Gymnasium's checker fails: {stopped} Training with proximo requires only the other checks; other libraries may require this one.",
            )
        )
    return findings or [ok(NAME, "Gymnasium's checker found no problem.")]


def differs_in_width(space: Any, observation: Any) -> bool:
    """Whether ``observation`` is a float array of the declared shape, but of another width."""
    if not isinstance(space, gym.spaces.Box) or not isinstance(observation, np.ndarray) or observation.shape != space.shape:
        return False
    return observation.dtype != space.dtype and observation.dtype.kind == space.dtype.kind == "f"


def _sentence(text: str) -> str:
    plain = " ".join(_COLORS.sub("", text).split()).removeprefix("WARN: ").removeprefix("ERROR: ")
    return plain if plain.endswith((".", "!", "?")) else f"{plain}."
