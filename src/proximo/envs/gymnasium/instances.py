"""Makes several environments from one that the user has made, or gives the reason why this is not possible."""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from proximo.custom_code import exception_text
from proximo.envs.gymnasium.action_masks import layers
from proximo.errors import EnvError

USE = "training and evaluation need several environments: pass its id, its class, or a function that makes one, as lambda: MyEnv(size=3)."
USE_VECTOR = (
    "evaluation needs other numbers of environments: pass a function that makes one, as lambda num_envs: MyVectorEnv(num_envs)."
)


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
    """Makes copies of an environment. It is pickled for worker processes."""

    original: Any

    def __call__(self, render_mode: str | None = None) -> Any:
        if render_mode is None or getattr(self.original, "render_mode", None) == render_mode:
            return copy.deepcopy(self.original)
        spec = getattr(self.original, "spec", None)
        drawing = self._in_mode("rgb_array")  # to try it, because a window would be seen
        if spec is None or _draws(drawing):
            return drawing if render_mode == "rgb_array" else self._in_mode(render_mode)
        # Its constructor may make the renderer, which a copy then lacks.
        try:
            made = gym.make(spec, render_mode=render_mode)
        except Exception:  # a custom wrapper may have no specification
            return self._in_mode(render_mode)
        warnings.warn(
            f"{spec.id}: a copy of the given environment cannot draw, so a new one is shown, without the changes made after gym.make. To show "
            f"them, make the environment with render_mode={render_mode!r}.",
            stacklevel=2,
        )
        return made

    def _in_mode(self, render_mode: str) -> Any:
        """A copy with another ``render_mode``. Most environments read it only when they draw."""
        made = copy.deepcopy(self.original)
        every = list(layers(made))
        environments = [layer for layer in every if isinstance(layer, gym.Env) and not isinstance(layer, gym.Wrapper)]
        named = [layer for layer in every if "render_mode" in getattr(layer, "__dict__", {})]
        for layer in (environments or every[-1:]) + named:
            with contextlib.suppress(AttributeError):  # a property
                layer.render_mode = render_mode
        return made


def _draws(env: Any) -> bool:
    """Whether ``env`` can draw its first state."""
    try:
        env.reset()
        return env.render() is not None
    except Exception:
        return False


def copies(env: Any, env_id: str) -> Callable[..., Any]:
    """A function that makes environments like ``env``: copies of it, or new ones by its specification if it cannot be copied, as
    environments of native code. Raises ``EnvError`` if neither is possible."""
    if getattr(env, "render_mode", None) == "human":
        raise EnvError(
            f"{env_id} has render_mode = 'human', so every environment of the training would open a window: make it without render_mode. "
            "`proximo watch` shows the trained policy."
        )
    try:
        original = copy.deepcopy(env)
        if innermost(original) is not innermost(env):
            return CopyOf(original)
        reason = "its copy is the same object"
    except Exception as error:
        reason = exception_text(error)
    spec = getattr(env, "spec", None)
    if spec is not None:
        try:
            gym.make(spec).close()
            return partial(gym.make, spec)
        except Exception as error:
            reason = exception_text(error)
    raise EnvError(f"{env_id} is an instance that cannot be copied ({reason}), and {USE}")


def vector_copies(env: Any, env_id: str) -> Callable[[int], Any]:
    """A function that makes vector environments like ``env`` with any number of environments. Raises ``EnvError`` if proximo does not know
    how."""
    if env.spec is not None and env.unwrapped is env:
        spec = copy.deepcopy(env.spec)
        spec.kwargs.pop("num_envs", None)
        return lambda num_envs: gym.make_vec(spec, num_envs=num_envs)
    if type(env) in (SyncVectorEnv, AsyncVectorEnv) and isinstance(env.env_fns, Sequence):
        if isinstance(env, SyncVectorEnv):
            check_distinct(env.envs, env_id)
        functions, options = env.env_fns, {n: getattr(env, n) for n in inspect.signature(type(env)).parameters if hasattr(env, n)}
        del options["env_fns"]
        return lambda num_envs: type(env)([functions[i % len(functions)] for i in range(num_envs)], **options)
    raise EnvError(f"{env_id} is a vector environment of {env.num_envs} environments that cannot be made again, and {USE_VECTOR}")
