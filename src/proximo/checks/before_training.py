"""The checks before every training: a few random steps in each environment, and what they and the settings suggest."""

from __future__ import annotations

from typing import Any

from proximo.checks.hints import hints
from proximo.checks.quick import QuickCheck, quick_check, trains_as_in_preset
from proximo.collect.program_cache import environment_key, reuse
from proximo.config import Config
from proximo.envs import GymnasiumEnvironment
from proximo.networks import ActorCritic


def check_before_training(env: Any, config: Config, policy: ActorCritic, evaluation: tuple[Any, Config]) -> list[str]:
    """Check the environment of a training and that of its evaluations, which ``evaluation`` has with its settings. ``policy`` is one of the
    training; its leaves may be ``jax.ShapeDtypeStruct``.

    Returns:
        Warnings, one sentence each.

    Raises:
        EnvError: an environment breaks its protocol.
    """
    quick = _checked(env, config, plays=not trains_as_in_preset(config))
    found = [*quick.warnings, *(hint.message for hint in hints(env, config, policy, quick.seen))]
    other, its_config = evaluation
    if other is not env:
        found += [*_checked(other, its_config, plays=True).warnings, *(hint.message for hint in hints(other, its_config))]
    return [*dict.fromkeys(found)]


def _checked(env: Any, config: Config, plays: bool) -> QuickCheck:
    """The result of the quick check, which runs once for each JAX environment. Gymnasium environments are other objects each time."""
    if isinstance(env, GymnasiumEnvironment):
        return quick_check(env, config.env.id, plays)
    # The entry keeps a reference, so that no other object gets the same id().
    return reuse(("checked", environment_key(env), plays), lambda: (env, quick_check(env, config.env.id, plays)))[1]
