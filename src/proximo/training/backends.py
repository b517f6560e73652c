"""Which ``Backend`` trains on an environment."""

from __future__ import annotations

from proximo.config import Config
from proximo.envs import Environment, GymnasiumEnvironment
from proximo.processes.peers import current
from proximo.training.backend import Backend, EvaluatedOn
from proximo.training.gymnasium_backend import GymnasiumBackend
from proximo.training.jax_backend import JaxBackend


def make_backend(config: Config, env: Environment, stacked: bool = False, evaluation: EvaluatedOn | None = None) -> Backend:
    """The backend that trains on ``env``, ``stacked`` if it supports this. ``evaluation`` is by default the
    environment that ``config`` describes. Raises ``EnvError`` if a JAX environment breaks its protocol."""
    if isinstance(env, GymnasiumEnvironment):
        return GymnasiumBackend(config, env, evaluation)
    return JaxBackend(config, env, stacked, evaluation)


def stacks_seeds(config: Config, env: Environment) -> bool:
    """Whether several seeds train together: on JAX environments in one process, unless ``seeds_mode`` is ``serial``."""
    return config.run.seeds_mode != "serial" and not isinstance(env, GymnasiumEnvironment) and current().count == 1
