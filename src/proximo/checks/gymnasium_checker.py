"""Gymnasium's own checker, its assertions and warnings as findings."""

from __future__ import annotations

import re
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env

from proximo.checks.finding import Finding, ok, warning
from proximo.envs.host.wrappers import ActionRepeat, Adopted, MaskFromInfo
from proximo.spaces import ACTION_MASK

NAME = "Gymnasium"
PEELED = (
    MaskFromInfo,
    ActionRepeat,
    gym.wrappers.FrameStackObservation,
    gym.wrappers.AtariPreprocessing,
    gym.wrappers.TimeLimit,
    gym.wrappers.OrderEnforcing,
    gym.wrappers.PassiveEnvChecker,
)
# What is no fault here: observations are normalised by what is seen, actions are scaled to their space, wrappers are meant.
NO_FAULT = (
    "is probably too low",
    "is probably too high",
    "recommend using a symmetric and normalized space",
    "different from the unwrapped version",
    "is out of date",
)
_COLOURS = re.compile(r"\x1b\[\d+m")


class AsDeclared(gym.ObservationWrapper):
    """Observations in the type of their Box, where only the width differs: Gymnasium takes float64 for another space, for a
    network it is none."""

    def observation(self, observation: Any) -> Any:
        """``observation`` of the declared width."""
        return np.asarray(observation, self.observation_space.dtype)


def peeled(env: Any) -> Any:
    """``env`` without the wrappers that proximo and ``gymnasium.make`` put around it."""
    while isinstance(env, PEELED):
        env = env.env
    return env


def look(env: Any, observations: list[Any]) -> list[Finding]:
    """Run the checker on ``env``, which gave ``observations``. What it stops at is a warning: what training itself asks for
    is held by other checks."""
    if isinstance(env.observation_space, gym.spaces.Dict) and ACTION_MASK in env.observation_space.spaces:
        return [ok(NAME, "Its own checker knows no action masks, and would take actions that are not allowed: left out.")]
    env = peeled(env)
    if isinstance(env, Adopted) or not isinstance(env, gym.Env):
        return [ok(NAME, "Its own checker looks at subclasses of gymnasium.Env only; training does not ask for one.")]
    if any(differs_in_width(env.observation_space, observation) for observation in observations):
        env = AsDeclared(env)
    stopped = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True, skip_close_check=True)
        except Exception as raised:
            stopped = _sentence(str(raised) or type(raised).__name__)
    told = dict.fromkeys(_sentence(str(c.message)) for c in caught if not any(text in str(c.message) for text in NO_FAULT))
    findings = [warning(NAME, f"Its own checker warns: {text}") for text in told]
    if stopped:
        findings.append(
            warning(
                NAME,
                f"Its own checker stops with: {stopped} Training asks for what the other lines say only; other libraries may not.",
            )
        )
    return findings or [ok(NAME, "Its own checker has nothing against it.")]


def differs_in_width(space: Any, observation: Any) -> bool:
    """Whether ``observation`` is an array of the declared kind and shape, but of another width."""
    if not isinstance(space, gym.spaces.Box) or not isinstance(observation, np.ndarray) or observation.shape != space.shape:
        return False
    return observation.dtype != space.dtype and observation.dtype.kind == space.dtype.kind == "f"


def _sentence(text: str) -> str:
    plain = " ".join(_COLOURS.sub("", text).split()).removeprefix("WARN: ").removeprefix("ERROR: ")
    return plain if plain.endswith((".", "!", "?")) else f"{plain}."
