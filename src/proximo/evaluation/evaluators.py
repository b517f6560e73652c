"""What plays whole episodes with a policy that does not learn."""

from __future__ import annotations

from typing import Protocol

from proximo.collect.program_cache import precision, reuse
from proximo.config import Config
from proximo.envs import Environment, GymnasiumEnvironment
from proximo.evaluation.episodes import MAX_STEPS, Episodes
from proximo.evaluation.gymnasium_evaluator import GymnasiumEvaluator
from proximo.evaluation.jax_evaluator import MAX_TOGETHER, JaxEvaluator
from proximo.networks import ActorCritic


class Evaluator(Protocol):
    """Plays a fixed number of episodes with any policy of its settings. The first call compiles."""

    def __call__(self, policy: ActorCritic, seed: int, stream: int, deterministic: bool = True) -> Episodes:
        """Play.

        Args:
            policy: the policy.
            seed: seed of the environments.
            stream: stream of random keys (``SELECTION_STREAM``, …). Seed and stream give the same episodes to every policy.
            deterministic: take the most probable actions; otherwise sample.
        """
        ...

    def close(self) -> None:
        """End the environments."""
        ...


def make_evaluator(env: Environment, config: Config, episodes: int, num_envs: int = 0) -> Evaluator:
    """The evaluator for policies of ``config``. For JAX environments it is one that this process has compiled already, if it
    fits.

    Args:
        env: the environment.
        config: the settings.
        episodes: number of episodes.
        num_envs: environments that play at a time. 0: as many as in the training; 512 JAX environments, if the memory is reset
            between episodes.
    """
    if isinstance(env, GymnasiumEnvironment):
        return GymnasiumEvaluator(env, config, episodes, num_envs)
    max_steps = config.run.eval_max_steps or MAX_STEPS
    num_envs = num_envs or (MAX_TOGETHER if config.network.reset_memory else config.env.num_envs)
    settings = (episodes, config.env.max_episode_steps, config.run.matmul_precision, max_steps, num_envs)
    return reuse(("evaluator", id(env), *settings, precision()), lambda: JaxEvaluator(env, *settings))
