"""What a study searches, and how: its plan, and the draws of its trials."""

import dataclasses
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import PartialFixedSampler, RandomSampler, TPESampler

from proximo.checks import quick_check
from proximo.collect.environment import environment
from proximo.collect.learning import policy_shapes
from proximo.config import Config, from_mapping, override, to_mapping
from proximo.config.loading import read_file
from proximo.config.validation import validate
from proximo.errors import CheckpointError, ConfigError, ProximoError, nearest
from proximo.evaluation.evaluate import check_number
from proximo.jax_setup import prepare_jax
from proximo.tracking.reporter import Reporter
from proximo.training.backends import make_backend
from proximo.tuning.journal import FINAL, TEST, TRIAL, Record
from proximo.tuning.space import Space, as_mapping, default_space, drawn_settings, read_space

FIRST_SEED = 100
"""First seed of the trials. Lower seeds are left for the report."""
DRAWS = 200
PRUNERS: dict[str, Callable[[], BasePruner]] = {
    "median": lambda: MedianPruner(n_startup_trials=10),
    "halving": lambda: SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
    "none": NopPruner,
}
LIMITS = {"trials": (1, 100_000), "seeds": (1, 100), "together": (1, 1000), "evaluations": (1, 100), "finalists": (0, 100)}


@dataclass(frozen=True)
class StudyPlan:
    """The arguments of ``proximo.tune``, checked. Raises ``ConfigError`` if a number is out of range."""

    base: Config
    space: Space
    constant: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Other settings that every trial but the base has: a fixed ``minibatch_size``."""
    trials: int = 64
    seeds: int = 2
    together: int = 8
    pruner: str = "median"
    evaluations: int = 4
    finalists: int = 3

    def __post_init__(self) -> None:
        for name, limits in LIMITS.items():
            check_number(name, getattr(self, name), *limits)
        if self.pruner not in PRUNERS:
            raise ConfigError(f"pruner = {self.pruner!r}: expected one of {', '.join(PRUNERS)}{nearest(self.pruner, PRUNERS)}.")
        if not self.base.run.eval_episodes:
            raise ConfigError("eval_episodes = 0: trials are compared by evaluations; expected 1 or more.")

    def seeds_of(self, kind: str) -> range:
        """The seeds of every ``trial``; or of the ``final`` round or the ``test``, as many as the compiled program trains together."""
        count = self.seeds if kind == TRIAL else self.seeds * self.together
        first = self.base.run.seed + {TRIAL: 0, FINAL: self.seeds, TEST: self.seeds + count}[kind]
        return range(first, first + count)

    def config(self, trial: Record) -> Config:
        """All settings of a trial."""
        return self.base if trial.number == 0 else validate(override(self.base, trial.settings, join=False))

    def store(self, journal: optuna.Study) -> None:
        journal.set_user_attr("plan", {**vars(self), "base": to_mapping(self.base), "space": as_mapping(self.space)})


def read_plan(journal: optuna.Study, folder: Path) -> StudyPlan:
    """The plan of the study in ``folder``. Raises ``CheckpointError`` if another version has written it."""
    try:
        plan = dict(journal.user_attrs["plan"])
        base = from_mapping(plan.pop("base"), Config(), "base")
        return StudyPlan(base, read_space(plan.pop("space"), base, "space", in_jax=False), **plan)
    except (KeyError, TypeError, ConfigError) as error:
        raise CheckpointError(
            f"{folder} was written by another version of proximo and cannot be continued. Start a new study from its "
            f"best settings, with --config {folder / 'preset.yaml'}."
        ) from error


def make_plan(
    config: Config,
    fixed: Collection[str],
    file: str | Path | None,
    reporter: Reporter,
    together: int | None = None,
    **search: Any,
) -> StudyPlan:
    """The plan of a study around the base ``config``. Settings named in ``fixed`` are not searched. Raises ``ConfigError`` or ``EnvError``
    if the study would fail later."""
    prepare_jax(for_seeds=True)
    seed = config.run.seed if "seed" in fixed else FIRST_SEED
    run = dataclasses.replace(config.run, seed=seed, seeds=1, seeds_mode="auto", name="")
    base = validate(dataclasses.replace(config, run=run))
    env = environment(base)
    for warning in quick_check(env, base.env.id)[0]:
        reporter.warned(warning)
    backend = make_backend(base, env, stacked=True)
    _ = backend.template  # the network may not fit the spaces
    together = (8 if backend.stacked else 1) if together is None else together
    if not backend.stacked and isinstance(together, int) and together > 1:
        raise ConfigError(
            f"together = {together}: {base.env.id} is a Gymnasium environment, where trials train one after the other: use 1."
        )
    if file is None:
        space = default_space(base, env, fixed)
    else:
        given = read_file(Path(file), "--space", "settings with their values, such as `num_steps: [64, 128]`")
        space = read_space(given, base, str(file), backend.stacked, fixed)
    if not space:
        raise ConfigError("There is nothing to search: the space is empty, or every setting of it was given as a flag.")
    constant = {"minibatch_size": base.batch_size // base.ppo.num_minibatches} if "minibatch_size" in fixed else {}
    plan = StudyPlan(base, space, constant, together=together, **search)
    draw(plan, optuna.create_study(), 1, {}, at_random=True)  # raises if no trial can be trained
    return plan


def _read_by_network(config: Config) -> tuple[Any, ...]:
    return config.env, config.network, config.ppo.normalize_observation


def draw(
    plan: StudyPlan, study: optuna.Study, number: int, fixed: dict[str, Any], at_random: bool = False
) -> tuple[dict[str, Any], optuna.Trial]:
    """Settings of trial ``number`` that can be trained, and Optuna's trial. The parameters ``fixed`` are not drawn.

    Multivariate TPE (Falkner et al. 2018, arXiv:1807.01774) counts running trials as bad ones, so the trials of a batch differ. A draw
    depends only on the seed, the number and the trials of ``study``.
    """
    unfit: list[optuna.Trial] = []
    last = None
    for attempt in range(DRAWS):
        seed = int(np.random.SeedSequence([plan.base.run.seed, number, attempt]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            tpe = TPESampler(seed=seed, multivariate=True, constant_liar=True)
            study.sampler = PartialFixedSampler(fixed, RandomSampler(seed) if at_random else tpe)
        trial = study.ask(plan.space)
        settings = drawn_settings(trial.params, plan.space, plan.base) | plan.constant
        try:
            config = validate(override(plan.base, settings, join=False))
            if _read_by_network(config) != _read_by_network(plan.base):
                policy_shapes(environment(config), config)
        except ProximoError as error:
            unfit.append(trial)  # still running, and so a bad one
            last = error
        else:
            for other in unfit:
                study.tell(other, state=optuna.trial.TrialState.FAIL)
            return settings, trial
    raise ConfigError(f"None of {DRAWS} draws from the search space can be trained; the last one: {last}")
