"""Makes the plan of a study from settings and a declared space, and reports every mistake in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import optuna

from proximo.backends import stacks_seeds
from proximo.collect.environment import environment
from proximo.config import Config
from proximo.config.loading import read_file
from proximo.config.validation import validate
from proximo.errors import ConfigError, EnvError, ProximoError
from proximo.jax_setup import prepare_jax
from proximo.tuning.default_space import default_space
from proximo.tuning.plan import FIRST_SEED, StudyPlan
from proximo.tuning.sampling import draw
from proximo.tuning.space import Space, check_together, read_space

DRAWS = 200
TOGETHER = 8


def make_plan(
    config: Config, fixed: Collection[str] = (), space_file: Path | None = None, together: int | None = None, **search: Any
) -> StudyPlan:
    """Make the plan of a study around the base ``config``.

    Args:
        config: settings of the base, trial 0.
        fixed: names of settings that are not searched. Trials use seeds from 100 up, unless ``fixed`` contains ``seed``.
        space_file: YAML file with the search space; None: the default space.
        together: trials in one compiled program; None: 8 (Gymnasium environments: 1).
        **search: other fields of ``StudyPlan``, for example ``trials=40``.

    Returns:
        The plan.

    Raises:
        ConfigError: a setting or the space is wrong.
        EnvError: the environment cannot be made.
    """
    prepare_jax(for_seeds=True)
    seed = config.run.seed if "seed" in fixed else FIRST_SEED
    base = validate(
        dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed, seeds=1, seeds_mode="auto", name=""))
    )
    env = environment(base)
    check_together(base, env, {})
    stacked = stacks_seeds(base, env)
    if together is None:
        together = TOGETHER if stacked else 1
    if space_file is None:
        space = default_space(base, env, fixed)
    else:
        expected = "settings with their values, such as `num_steps: [64, 128]`"
        space = read_space(read_file(space_file, "--space", expected), base, str(space_file), in_jax=stacked, fixed=fixed)
    if not space.dimensions:
        raise ConfigError("There is nothing to search: the space is empty, or every setting of it was given as a flag.")
    plan = StudyPlan(base, space, together=together, **search)
    _check_space(space, base, env)
    return plan


def _check_space(space: Space, base: Config, env: Any) -> None:
    """Raise ``ConfigError`` if none of ``DRAWS`` draws from ``space`` can be trained on ``env``."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    last: ProximoError | None = None
    for _ in range(DRAWS):
        try:
            check_together(base, env, space.settings(draw(study.ask(), space)))
        except (ConfigError, EnvError) as error:
            last = error
        else:
            return
    raise ConfigError(f"None of {DRAWS} draws from the search space can be trained; the last one: {last}")
