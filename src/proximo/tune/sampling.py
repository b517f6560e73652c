"""Draws the settings of trials: Optuna's TPE, for batches of trials that share a compiled program."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, PartialFixedSampler, RandomSampler, TPESampler
from optuna.trial import Trial, TrialState

from proximo.tune.dimension import Parameters
from proximo.tune.space import Space

EXPLORING_BATCHES = 3
"""This many batches, after the one of the base, draw the settings that need a compilation at random. Later, every fourth batch does."""
EXPLORE_EVERY = 4
STARTUP_TRIALS = 10
DRAWS = 200

# Optuna announces every study and trial; the reporter of this package reports them already.
optuna.logging.set_verbosity(optuna.logging.ERROR)


def make_sampler(seed: int, number: int, fixed: Parameters) -> BaseSampler:
    """TPE for trial ``number``, with some parameters ``fixed``. Each trial has a sampler of its own, so that its draws depend on
    the earlier trials and the seed alone, whether the study was interrupted or not.

    Multivariate TPE (Falkner et al. 2018, arXiv:1807.01774) that counts running trials as bad ones (constant liar), so that the trials of a
    batch differ. Groups of conditional parameters are not needed: every trial has every parameter.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        tpe = TPESampler(
            seed=_seed(seed, number),
            multivariate=True,
            constant_liar=True,
            n_startup_trials=STARTUP_TRIALS,
        )
        return PartialFixedSampler(fixed, tpe)


def _seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def draw(trial: Trial, space: Space) -> Parameters:
    """All parameters of ``trial``. Those that were drawn before an interruption are kept."""
    found: Parameters = {}
    for name, d in space.distributions().items():
        if isinstance(d, CategoricalDistribution):
            found[name] = trial.suggest_categorical(name, d.choices)
        elif isinstance(d, IntDistribution):
            found[name] = trial.suggest_int(name, d.low, d.high, step=d.step, log=d.log)
        elif isinstance(d, FloatDistribution):
            found[name] = trial.suggest_float(name, d.low, d.high, step=d.step, log=d.log)
    return found


def explores(batch: int) -> bool:
    """Whether a batch draws the settings that need a compilation at random."""
    return batch <= EXPLORING_BATCHES or batch % EXPLORE_EVERY == EXPLORE_EVERY - 1


def shared_part(
    study: optuna.Study,
    space: Space,
    names: Collection[str],
    seed: int,
    number: int,
    at_random: bool,
    fits: Callable[[Any], bool],
) -> Parameters:
    """The parameters ``names``, which the trials of a batch have in common; ``number`` is its first trial.

    They are drawn by the sampler, or ``at_random``, in a copy of the study. Draws whose settings do not fit together (``fits``)
    therefore leave no trials in the study.
    """
    copy = optuna.create_study(direction="maximize")
    copy.add_trials([t for t in study.get_trials(deepcopy=False) if t.state.is_finished()])
    copy.sampler = RandomSampler(seed=_seed(seed, number)) if at_random else make_sampler(seed, number, {})
    parameters: Parameters = {}
    for _ in range(DRAWS):
        trial = copy.ask()
        parameters = draw(trial, space)
        if fits(space.settings(parameters)):
            break
        copy.tell(trial, state=TrialState.FAIL)
    return {key: value for key, value in parameters.items() if key in names}


class HalvingPruner(optuna.pruners.BasePruner):
    """Asynchronous successive halving (Li et al. 2018, arXiv:1810.05934): at evaluations 1, 2, 4 … a trial continues if it is in
    the better half of all trials with a value at this evaluation.

    Optuna's ``SuccessiveHalvingPruner`` records the value of a trial only when it decides about this trial. It would therefore
    compare each trial of a batch only with those before it.
    """

    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        """Whether to prune the trial at its last evaluation."""
        step = trial.last_step
        if step is None or step & (step - 1):
            return False
        trials = study.get_trials(deepcopy=False)
        values = sorted(t.intermediate_values[step] for t in trials if step in t.intermediate_values)
        return trial.intermediate_values[step] < values[-max(1, len(values) // 2)]


def make_pruner(kind: str) -> optuna.pruners.BasePruner:
    """The pruner for ``median`` (of earlier trials), ``halving`` or ``none``."""
    if kind == "halving":
        return HalvingPruner()
    if kind == "none":
        return optuna.pruners.NopPruner()
    return optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS)
