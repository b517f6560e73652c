"""What plays whole episodes with a policy that does not learn."""

from __future__ import annotations

from typing import Protocol

from proximo.collect.program_cache import environment_key, reuse
from proximo.config import Config
from proximo.envs import Environment, GymnasiumEnvironment
from proximo.evaluation.episodes import Episodes
from proximo.evaluation.gymnasium_evaluator import GymnasiumEvaluator
from proximo.evaluation.jax_evaluator import JAX_TOGETHER, JaxEvaluator
from proximo.networks import ActorCritic

GYMNASIUM_TOGETHER, ARRAYS_TOGETHER = 64, 256
"""Gymnasium environments at a time: a step of the policy for 64 takes little longer than one for 8. More environments fit where Gymnasium
steps all of them as arrays, as for CartPole."""


class Evaluator(Protocol):
    """Plays a fixed number of episodes with any policy of its settings. The first call compiles, unless ``compile`` was called."""

    num_envs: int
    """Number of environments that play at a time."""

    def __call__(
        self, policy: ActorCritic, seed: int, stream: int, deterministic: bool = True, episodes: int | None = None
    ) -> Episodes:
        """Play with the most probable actions, or with sampled ones. ``seed`` and ``stream`` (``SELECTION_STREAM``, …) give the same
        episodes to every policy. ``episodes``: fewer than those of the evaluator, a multiple of ``num_envs``; None: all."""
        ...

    def compile(self, policy: ActorCritic) -> None:
        """Compile what a call with the most probable actions needs. ``policy`` may have ``jax.ShapeDtypeStruct`` instead of arrays."""
        ...

    def close(self) -> None:
        """End the environments."""
        ...


def make_evaluator(
    env: Environment, config: Config, episodes: int, num_envs: int | None = None, part: tuple[int, int] = (0, 1)
) -> Evaluator:
    """The evaluator for policies of ``config``. For JAX environments, an evaluator that this process has already compiled is used again if
    it fits.

    ``num_envs`` environments play at a time. None: as many as in the training. 0: a number that runs fast, or as many as in the training if
    the memory is kept across episodes. For JAX environments, None means 0. With ``part = (i, n)``, the evaluator plays part i of n of the
    episodes, which together are those of one evaluator.
    """
    if isinstance(env, GymnasiumEnvironment):
        if num_envs == 0 and config.network.reset_memory:
            steps_arrays = env.make is not None and env.make_vector is not None
            num_envs = max(ARRAYS_TOGETHER if steps_arrays else GYMNASIUM_TOGETHER, config.env.num_envs)
        return GymnasiumEvaluator(env, config, episodes, num_envs or config.env.num_envs, part)
    num_envs = num_envs or (JAX_TOGETHER if config.network.reset_memory else config.env.num_envs)
    limits = config.env.max_episode_steps, config.run.eval_max_steps
    key = "evaluator", environment_key(env), *limits, config.run.matmul_precision, episodes, num_envs, part
    return reuse(key, lambda: JaxEvaluator(env, config, episodes, num_envs, part))
