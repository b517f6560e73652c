"""The checks before a training: a few random steps, and what they and the settings suggest."""

import contextlib
from typing import Any

from proximo.checks.hints import check_scale, hints
from proximo.checks.jax_transforms import check_tracing
from proximo.checks.play import Play, opened, play_in, steppable
from proximo.collect.program_cache import environment_key, reuse
from proximo.config import Config
from proximo.config.schema import OF_PRESET
from proximo.envs import GymnasiumEnvironment
from proximo.envs.custom import innermost
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import EnvError, command
from proximo.networks import ActorCritic

MAX_STEPS = 100
SECONDS = 0.1
CHANGE_ENVIRONMENT = (
    "env_settings", "levels", "normalize_observation", "clip_observation", "normalize_reward", "reward_scale", "clip_reward",
)  # fmt: skip
"""Settings that change a JAX environment, or the scale of what the learner reads."""


def check_before_training(env: Any, config: Config, policy: ActorCritic, evaluation: tuple[Any, Config]) -> list[str]:
    """Check the training environment, and the ``evaluation`` environment with its settings. Returns warnings,
    one sentence each.

    The leaves of ``policy`` may be ``jax.ShapeDtypeStruct``. Raises ``EnvError`` if an environment breaks
    its protocol.
    """
    preset = OF_PRESET.format(config.env.id)
    # The preset is for this environment, and no other layer changes it or the scale of its numbers.
    trains_as_in_preset = preset in config.origins.values() and all(
        config.origins.get(name, preset) == preset for name in CHANGE_ENVIRONMENT
    )
    warnings, seen = _checked(env, config, plays=not trains_as_in_preset)
    found = hints(env, config, policy)
    if seen is not None:
        found += check_scale(env.observation_space, seen.observation, seen.reward, config)
    other, its_config = evaluation
    if other is not env:
        warnings = [*warnings, *_checked(other, its_config, plays=True)[0]]
        found += hints(other, its_config)
    return [*dict.fromkeys([*warnings, *(one.message for one in found if one.level == "warning")])]


def _checked(env: Any, config: Config, plays: bool) -> tuple[list[str], Play | None]:
    """``quick_check``, once for each JAX environment. Gymnasium environments are other objects each time."""
    if isinstance(env, GymnasiumEnvironment):
        return quick_check(env, config.env.id)
    # The entry keeps a reference, so that no other object gets the same id().
    return reuse(("checked", environment_key(env), plays), lambda: (env, quick_check(env, config.env.id, plays)))[1]


def quick_check(env: JaxEnvironment | GymnasiumEnvironment, env_id: str, plays: bool = True) -> tuple[list[str], Play | None]:
    """Check the first random steps of an environment. Returns warnings, and up to ``MAX_STEPS`` steps; None
    if there were none.

    Without ``plays``, reset and step of JAX environments are only traced. Vector environments without
    single ones are not checked: making EnvPool or ALE takes long, and training checks their first thousand
    steps. Raises ``EnvError`` if the environment cannot be trained.
    """
    if isinstance(env, GymnasiumEnvironment):
        plays = env.make is not None
    else:
        check_tracing(env, env_id)
    if not plays:
        return [], None
    played, warnings = steppable(env, env_id), []
    with contextlib.closing(opened(played, 1, MAX_STEPS)) as vector_env:
        first = seen = play_in(vector_env, played, 0, seconds=0.0)
        with contextlib.suppress(EnvError):  # a later fault ends the training, which reports its step
            seen = play_in(vector_env, played, 0, SECONDS)
        if first.difference(seen) is not None:
            details = f"`{command('proximo', 'check', env_id)}` reports the details."
            warnings.append(f"{env_id} gives different steps for the same seed and actions, so no run can be repeated. {details}")
        one = vector_env.steppers[0].envs[0]
        # An environment whose constructor sets no render_mode may draw without it.
        if "render_mode" in getattr(innermost(one), "__dict__", {}) and (unseen := played.without_render_mode(one)):
            warnings.append(unseen)
    return warnings, seen
