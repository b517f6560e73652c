"""What plays whole episodes with a policy that does not learn."""

from __future__ import annotations

from proximo.collect.program_cache import environment_key, reuse
from proximo.config import Config
from proximo.envs import Environment, GymnasiumEnvironment
from proximo.evaluation.gymnasium_evaluator import GymnasiumEvaluator
from proximo.evaluation.jax_evaluator import JAX_TOGETHER, JaxEvaluator

GYMNASIUM_TOGETHER, ARRAYS_TOGETHER = 64, 256
"""Gymnasium environments at a time: a step of the policy for 64 takes little longer than one for 8. More environments fit where Gymnasium
steps all of them as arrays, as for CartPole."""


def make_evaluator(
    env: Environment, config: Config, episodes: int, num_envs: int | None = None, part: tuple[int, int] = (0, 1)
) -> GymnasiumEvaluator | JaxEvaluator:
    """Make an evaluator, which plays a fixed number of episodes with any policy of ``config``. For JAX environments, an evaluator that this
    process has already compiled is used again if it fits.

    An evaluator is called with a policy, a seed and a stream (``SELECTION_STREAM``, …), which give the same
    episodes to every policy; with ``deterministic=False`` to sample the actions; and with ``episodes`` to
    play fewer episodes, a multiple of its ``num_envs``. Its first call compiles, unless ``compile`` was
    called before, with a policy that may have ``jax.ShapeDtypeStruct`` instead of arrays.

    Args:
        env: the environment.
        config: settings of the training.
        episodes: number of episodes.
        num_envs: environments that play at a time. None: as many as in the training. 0: a number that runs
            fast, or as many as in the training if the memory is kept across episodes. For JAX environments,
            None means 0.
        part: ``(i, n)``: play only part i of n of the episodes, which together are those of one evaluator.
    """
    keeps_memory = not config.network.reset_memory
    if isinstance(env, GymnasiumEnvironment):
        if num_envs == 0 and not keeps_memory:
            steps_arrays = env.make is not None and env.make_vector is not None
            num_envs = max(ARRAYS_TOGETHER if steps_arrays else GYMNASIUM_TOGETHER, config.env.num_envs)
        return GymnasiumEvaluator(env, config, episodes, num_envs or config.env.num_envs, part)
    num_envs = num_envs or (config.env.num_envs if keeps_memory else JAX_TOGETHER)
    limits = config.env.max_episode_steps, config.run.eval_max_steps
    key = "evaluator", environment_key(env), *limits, config.run.matmul_precision, episodes, num_envs, part
    return reuse(key, lambda: JaxEvaluator(env, config, episodes, num_envs, part))
