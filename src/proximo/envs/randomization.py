"""``randomize = my_module:my_function``: each reset draws parameters of the environment (domain randomization, Tobin et al. 2017,
arXiv:1703.06907)."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from proximo.custom_code import custom_code_errors
from proximo.envs.libraries import JaxWrapper
from proximo.errors import ConfigError


class JaxRandomization(JaxWrapper):
    """A JAX environment whose resets call ``draw(key, params)``, which returns the parameters of the episode. The state holds the
    parameters that ``draw`` changes; all environments share the others.

    Raises ``ConfigError`` if ``env`` has no parameters, or if ``draw`` raises an error or changes the structure, shapes or types of
    the parameters.
    """

    def __init__(self, env: Any, draw: Callable[[Any, Any], Any], env_id: str):
        import jax

        super().__init__(getattr(env, "with_model_as_params", lambda: env)())
        self.draw, self.default_params = draw, jax.tree.map(jax.numpy.asarray, self.default_params)
        params = self.default_params
        before, structure = jax.tree.flatten(params)
        if not before:
            raise ConfigError(f"randomize: {env_id} has no parameters that could be drawn (default_params).")
        with custom_code_errors(f"randomize, called with (key, params) of {env_id},", ConfigError):
            traced, shapes = jax.make_jaxpr(draw, return_shape=True)(jax.random.key(0), params)
        if jax.tree.structure(shapes) != structure:
            raise ConfigError(
                f"randomize returns {jax.tree.structure(shapes)}: expected {structure}, the parameters of {env_id}."
            )
        for (path, x), y in zip(jax.tree.leaves_with_path(params), jax.tree.leaves(shapes), strict=True):
            if x.shape != y.shape or not np.can_cast(y.dtype, x.dtype, "same_kind"):
                raise ConfigError(
                    f"randomize changes {jax.tree_util.keystr(path)} of {env_id} from {x.dtype}{list(x.shape)} to "
                    f"{y.dtype}{list(y.shape)}: expected the same shape and type."
                )
        pairs = zip(traced.jaxpr.invars[1:], traced.jaxpr.outvars, strict=True)  # the first one is the key
        self.is_drawn = [new is not old for old, new in pairs]
        """Which leaves of the parameters ``draw`` changes."""

    def inside(self, state, params):
        return state[0], self._merged(params, state[1])

    def _merged(self, params: Any, drawn: list[Any]) -> Any:
        """``params`` with the leaves ``drawn``."""
        import jax

        shared, structure = jax.tree.flatten(params)
        of_episode = iter(drawn)
        return structure.unflatten(next(of_episode) if own else x for own, x in zip(self.is_drawn, shared, strict=True))

    def reset(self, key, params):
        import jax

        key_draw, key_reset = jax.random.split(key)
        pairs = zip(self.is_drawn, jax.tree.leaves(params), jax.tree.leaves(self.draw(key_draw, params)), strict=True)
        drawn = [jax.numpy.asarray(new, old.dtype) for own, old, new in pairs if own]
        state, observation = self.env.reset(key_reset, self._merged(params, drawn))
        return (state, drawn), observation

    def step(self, key, state, action, params):
        inner, params = self.inside(state, params)
        inner, *rest = self.env.step(key, inner, action, params)
        return (inner, state[1]), *rest


def with_randomization(env: Any, draw: Callable[..., Any] | None, env_id: str) -> Any:
    """A JAX environment in ``JaxRandomization`` if ``draw`` is given. Gymnasium environments are wrapped one by one."""
    return env if draw is None or hasattr(env, "make_vector") else JaxRandomization(env, draw, env_id)


class Randomization(gym.Wrapper):
    """Passes the dict that ``draw(rng)`` returns to each reset as ``options``. The seed of a reset also seeds ``rng``."""

    def __init__(self, env: Any, draw: Callable[[np.random.Generator], dict[str, Any]]):
        super().__init__(env)
        self.draw, self.rng = draw, np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        self.rng = self.rng if seed is None else np.random.default_rng([seed, 1])
        with custom_code_errors("randomize, called with (rng),", ConfigError):
            drawn = self.draw(self.rng)
        if not isinstance(drawn, dict):
            raise ConfigError(f"randomize returned {type(drawn).__name__}: expected a dict, the options of reset.")
        with custom_code_errors(f"reset(seed=…, options={drawn}), with the options of randomize,"):
            return self.env.reset(seed=seed, options={**(options or {}), **drawn})
