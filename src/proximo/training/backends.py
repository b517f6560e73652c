"""Which ``Backend`` trains on an environment: one subclass is for JAX environments, one for Gymnasium environments."""

from __future__ import annotations

from proximo.config import Config
from proximo.envs import Environment, GymnasiumEnvironment
from proximo.processes.peers import current
from proximo.training.backend import Backend, EvaluatedOn
from proximo.training.gymnasium_backend import GymnasiumBackend
from proximo.training.jax_backend import JaxBackend


def make_backend(config: Config, env: Environment, stacked: bool = False, evaluation: EvaluatedOn | None = None) -> Backend:
    """The backend that trains on ``env``. With ``stacked`` it trains several seeds together if it supports this; ``backend.stacked`` is
    then True. ``evaluation`` is the environment of its evaluations with its settings; None: the one that ``config``
    describes. Raises ``EnvError`` if a JAX environment breaks its protocol."""
    return _backend_of(env)(config, env, stacked, evaluation)  # pyright: ignore[reportArgumentType]


def stacks_seeds(config: Config, env: Environment) -> bool:
    """Whether several seeds train together: the backend of ``env`` is able to, ``seeds_mode`` is not ``serial``, and there is one
    process."""
    return config.run.seeds_mode != "serial" and _backend_of(env).can_stack and current().count == 1


def _backend_of(env: Environment) -> type[GymnasiumBackend] | type[JaxBackend]:
    return GymnasiumBackend if isinstance(env, GymnasiumEnvironment) else JaxBackend
