"""``brax:ant``: brax without its wrappers."""

import inspect
import warnings
from typing import Any

from proximo.envs.jax.physics import Robot, quietly
from proximo.envs.libraries import check_names, load, take_limit

LIMIT = 1000
"""Default steps of an episode, as in brax."""


def names() -> list[str]:
    """Return all but ``swimmer``, which needs an older JAX."""
    return [
        "ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum", "inverted_pendulum", "pusher",
        "reacher", "walker2d",
    ]  # fmt: skip


def from_name(name: str, settings: dict[str, Any]) -> Robot:
    """Make an environment; ``settings`` are ``episode_length`` and arguments of its class (``backend``, …)."""
    env_id = f"brax:{name}"
    with quietly():
        known = load(env_id, ".envs")._envs
    limit, arguments = take_limit(settings, "episode_length", LIMIT)
    parameters = inspect.signature(known[name]).parameters.values()
    taken = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    check_names(arguments, [*taken, "n_frames", "episode_length"], env_id)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Brax System")  # see docs/environments.md
        return Robot(known[name](**arguments), limit)
