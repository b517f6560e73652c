"""Base classes of proximo's environments. Workers import them, so they need neither JAX nor Gymnasium."""

from typing import Any


class Described:
    """An environment whose ``repr`` is one line with its spaces."""

    observation_space: Any
    action_space: Any

    def __repr__(self) -> str:
        env_id = getattr(self, "id", None)
        name = "" if env_id is None else f"{env_id!r}: "
        return f"{type(self).__name__}({name}{self.observation_space} → {self.action_space})"


class JaxWrapper(Described):
    """A JAX environment that changes another one, ``env``."""

    def __init__(self, env: Any):
        self.env, self.default_params = env, getattr(env, "default_params", ())
        for name in ("observation_space", "action_space", "render", "render_fps"):
            if hasattr(env, name):
                setattr(self, name, getattr(env, name))

    def reset(self, key: Any, params: Any) -> tuple[Any, Any]:
        return self.env.reset(key, params)

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, ...]:
        return self.env.step(key, state, action, params)


def unwrapped(env: Any) -> Any:
    """The JAX environment inside all wrappers of proximo."""
    return unwrapped(env.env) if isinstance(env, JaxWrapper) else env
