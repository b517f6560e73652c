"""``brax:ant``: brax's environments, without its wrappers (``physics.Robot``)."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from proximo.envs.jax import libraries
from proximo.envs.jax.physics import Robot
from proximo.envs.settings import hold_names, take_limit
from proximo.errors import EnvError
from proximo.users_code import users_code

NAMES = (
    "ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum", "inverted_pendulum", "pusher",
    "reacher", "walker2d",
)  # fmt: skip
LIMIT = 1000
"""Steps of an episode, brax's own default."""


def names() -> list[str]:
    """What brax has and can be trained here; none where it is not installed."""
    return libraries.listed("brax", NAMES)


def from_name(name: str, settings: dict[str, Any]) -> Robot:
    """brax's environment; ``settings`` are ``episode_length`` and arguments of its class, as ``backend``."""
    env_id = f"brax:{name}"
    known = libraries.load("brax.envs", env_id, "brax")._envs
    libraries.hold_known(name, known, "brax")
    if name == "swimmer":
        raise EnvError(f"{env_id} cannot be trained: brax 0.14.2 calls jax.numpy.clip in it as JAX 0.10 no longer takes it.")
    limit, arguments = take_limit(settings, "episode_length", LIMIT)
    parameters = inspect.signature(known[name]).parameters.values()
    taken = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    hold_names(arguments, [*taken, "n_frames", "episode_length"], env_id)
    with warnings.catch_warnings(), users_code(f"Making {env_id}"):
        warnings.filterwarnings("ignore", "Brax System")  # that brax is no longer developed: docs/environments.md says so
        return Robot(known[name](**arguments), limit)
