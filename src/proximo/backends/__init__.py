"""What trains on environments: one protocol, with an implementation for JAX and one for Gymnasium environments."""

from __future__ import annotations

from proximo.backends.gymnasium_backend import GymnasiumBackend
from proximo.backends.jax_backend import JaxBackend
from proximo.backends.protocol import Backend
from proximo.backends.states import copy_of, with_total_steps
from proximo.config import Config
from proximo.envs import Environment, GymnasiumEnvironment

__all__ = ["Backend", "copy_of", "make_backend", "stacks_seeds", "with_total_steps"]


def make_backend(config: Config, env: Environment, stacked: bool = False) -> Backend:
    """The backend that trains on ``env``.

    Args:
        config: the settings.
        env: the environment.
        stacked: train several seeds together, if the environment allows it: ``backend.stacked`` has the answer.

    Raises:
        EnvError: a JAX environment breaks its protocol.
    """
    return GymnasiumBackend(config, env) if isinstance(env, GymnasiumEnvironment) else JaxBackend(config, env, stacked)


def stacks_seeds(config: Config, env: Environment) -> bool:
    """Whether several seeds of these settings train together: ``seeds_mode`` says so, or leaves the choice to the environment."""
    return config.run.seeds_mode == "vmap" or (config.run.seeds_mode == "auto" and not isinstance(env, GymnasiumEnvironment))
