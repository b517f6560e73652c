"""Makes several environments from one that the user has made."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from proximo.custom_code import exception_text
from proximo.envs.gymnasium.action_masks import layers
from proximo.errors import EnvError

USE = "training and evaluation need several environments: pass its id, its class, or a function that makes one, as lambda: MyEnv(size=3)."


def innermost(env: Any) -> Any:
    """The environment inside all wrappers."""
    return list(layers(env))[-1]


def check_distinct(envs: Sequence[Any], env_id: str) -> None:
    """Raise ``EnvError`` if two of ``envs``, which a function has made, are the same object."""
    if len({id(innermost(env)) for env in envs}) < len(envs):
        raise EnvError(
            f"{env_id} returned the same environment twice, but every environment of a training must be an object of its own: create it "
            "inside the function, as lambda: MyEnv(size=3)."
        )


@dataclass(frozen=True)
class CopyOf:
    """Makes deep copies of an environment. It is pickled for worker processes."""

    original: Any

    def __call__(self, render_mode: str | None = None) -> Any:
        made = copy.deepcopy(self.original)
        if render_mode is not None and getattr(made, "render_mode", None) != render_mode:
            # Most environments read it only when they draw.
            with contextlib.suppress(AttributeError):  # a property
                made.unwrapped.render_mode = render_mode
        return made


def copies(env: Any, env_id: str) -> CopyOf:
    """Return a function that makes copies of ``env``. Raises ``EnvError`` if it cannot be copied."""
    if getattr(env, "render_mode", None) == "human":
        raise EnvError(
            f"{env_id} has render_mode = 'human', so every environment of the training would open a window: make it without render_mode. "
            "`proximo watch` shows the trained policy."
        )
    try:
        original = copy.deepcopy(env)
        reason = "its copy is the same object" if innermost(original) is innermost(env) else ""
    except Exception as error:
        reason = exception_text(error)
    if reason:
        raise EnvError(f"{env_id} is an instance that cannot be copied ({reason}), and {USE}")
    return CopyOf(original)


def vector_copies(env: Any, env_id: str) -> Callable[[int], Any]:
    """Return a function that makes vector environments like ``env``, with any number of environments. Raises ``EnvError`` unless it has a
    specification, or is one of Gymnasium's that are made from functions."""
    if env.spec is not None and env.unwrapped is env:
        spec = copy.deepcopy(env.spec)
        spec.kwargs.pop("num_envs", None)
        return lambda num_envs: gym.make_vec(spec, num_envs=num_envs)
    if type(env) in (SyncVectorEnv, AsyncVectorEnv):
        if isinstance(env, SyncVectorEnv):
            check_distinct(env.envs, env_id)
        functions, mode = list(env.env_fns), env.metadata["autoreset_mode"]
        return lambda num_envs: type(env)([functions[i % len(functions)] for i in range(num_envs)], autoreset_mode=mode)
    raise EnvError(
        f"{env_id} is a vector environment of {env.num_envs} environments, and evaluation needs other numbers of them: pass a function that "
        "makes one, as lambda num_envs: MyVectorEnv(num_envs)."
    )
