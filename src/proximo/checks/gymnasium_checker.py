"""Runs Gymnasium's own checker; its assertions and warnings become findings."""

import re
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env

from proximo.checks.hints import Finding
from proximo.custom_code import exception_text
from proximo.envs.gymnasium.parallel_env import ParallelEnv
from proximo.envs.gymnasium.preprocessing import WithBaseClass
from proximo.spaces import ACTION_MASK

NAME = "Gymnasium"
IGNORED = re.compile(
    "is probably too (low|high)|recommend using a symmetric and normalized space|different from the unwrapped version|is out of date"
)
"""Not problems here: ``hints.py`` warns of large observations, and proximo scales actions to their space."""
DECORATION = re.compile(r"\x1b\[\d+m|WARN: |ERROR: ")


def check(env: Any) -> list[Finding]:
    """Run the checker on ``env``. Its failures are warnings: other checks cover what training requires."""
    space, found = env.observation_space, []
    if isinstance(env, ParallelEnv):
        return _skipped("it is for environments of one agent")
    if isinstance(space, gym.spaces.Dict) and ACTION_MASK in space.spaces:
        return _skipped("it ignores action masks and would take actions that are not allowed")
    if isinstance(env.unwrapped, WithBaseClass):
        return _skipped("it accepts only subclasses of gymnasium.Env, which training does not require")
    if isinstance(space, gym.spaces.Box) and space.dtype == "float32":  # it rejects float64, which a network accepts
        env = gym.wrappers.TransformObservation(
            env, lambda x: np.float32(x) if getattr(x, "dtype", "") == "float64" else x, space
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True, skip_close_check=True)
        except Exception as raised:
            failure = _sentence(str(raised) or exception_text(raised))
            found.append(
                f"fails: {failure} Training with proximo requires only the other checks; other libraries may require this one."
            )
    found[:0] = [f"warns: {_sentence(str(c.message))}" for c in caught if not IGNORED.search(str(c.message))]
    warned = [Finding(NAME, "warning", f"Gymnasium's checker {message}") for message in dict.fromkeys(found)]
    return warned or [Finding(NAME, "ok", "Gymnasium's checker found no problem.")]


def _skipped(why: str) -> list[Finding]:
    return [Finding(NAME, "ok", f"Gymnasium's checker was skipped: {why}.")]


def _sentence(text: str) -> str:
    plain = " ".join(DECORATION.sub("", text).split())
    return plain if plain.endswith((".", "!", "?")) else f"{plain}."
