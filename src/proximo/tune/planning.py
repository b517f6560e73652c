"""From settings and a declared space to the plan of a study: all that can be wrong with it is said here."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import optuna

from proximo.config import Config
from proximo.errors import ConfigError
from proximo.run.reuse import environment
from proximo.run.settings import read_file
from proximo.run.validation import validate
from proximo.runtime import prepare_jax
from proximo.tune.default_space import default_space
from proximo.tune.plan import FIRST_SEED, StudyPlan
from proximo.tune.sampling import draw
from proximo.tune.space import Space, read_space, with_settings
from proximo.tune.trials import is_of_host

DRAWS = 200
TOGETHER = 8


def make_plan(
    config: Config, fixed: Collection[str] = (), space_file: Path | None = None, together: int | None = None, **search: Any
) -> StudyPlan:
    """The plan of a study around ``config``; ``fixed`` settings leave the space, and ``search`` are fields of the plan.

    Without ``space_file`` the default space is searched. Trials are trained on seeds from 100 up, unless ``fixed`` has ``seed``;
    ``together`` of them in a program, without it 8 (on the host 1). Raises ``ConfigError`` and ``EnvError``.
    """
    prepare_jax()
    seed = config.run.seed if "seed" in fixed else FIRST_SEED
    base = validate(
        dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed, seeds=1, seeds_mode="auto", name=""))
    )
    env, host = environment(base), is_of_host(base)
    if together is None:
        together = 1 if host else TOGETHER
    if space_file is None:
        space = default_space(base, env)
    else:
        expected = "settings with their values, as `num_steps: [64, 128]`"
        space = read_space(read_file(space_file, "--space", expected), base, str(space_file), in_jax=not host)
    space = space.without(fixed)
    if not space.dimensions:
        raise ConfigError("There is nothing to search: the space is empty, or every setting of it was given as a flag.")
    plan = StudyPlan(base, space, together=together, **search)
    _hold_space(space, base)
    return plan


def _hold_space(space: Space, base: Config) -> None:
    """Raise ``ConfigError`` unless some of what can be drawn from ``space`` is fit for training."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    said: ConfigError | None = None
    for _ in range(DRAWS):
        try:
            validate(with_settings(base, space.settings(draw(study.ask(), space))))
        except ConfigError as error:
            said = error
        else:
            return
    raise ConfigError(f"Of {DRAWS} draws from the search space none can be trained; the last one: {said}")
