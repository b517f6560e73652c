"""Which trials of a batch continue does not depend on their order."""

import itertools

import numpy as np
import optuna
import pytest

from proximo.tuning.pruning import TrialSelection
from proximo.tuning.sampling import make_pruner
from proximo.tuning.trial import TrialResult

SCORES = (3.0, -1.0, 7.0, 0.5, 4.0, -6.0, 2.0, 9.0)


class Trainer:
    width, full_seconds = 8, 1.0


def ask(study, count):
    """``count`` trials of a batch, by number."""
    trials = [study.ask() for _ in range(count)]
    return {trial.number: trial for trial in trials}


def survivors(pruner, scores, evaluations=1, earlier=()):
    """Scores of the trials that continue after each of ``evaluations``, in a batch with ``scores``, after the base and ``earlier`` trials."""
    study = optuna.create_study(direction="maximize", pruner=make_pruner(pruner))
    for score in (min(SCORES) - 1, *earlier):
        trial = study.ask()
        for evaluation in range(1, 5):
            trial.report(score, evaluation)
        study.tell(trial, score)
    batch = ask(study, len(scores))
    told = {number: {} for number in batch}
    select = TrialSelection(batch, told, deadline=lambda: np.inf, finished=lambda record: None, width=8, base_in_space=True)
    select.begin(list(batch), Trainer())
    live, found = range(len(scores)), []
    for evaluation in range(1, evaluations + 1):
        live = sorted(select(evaluation, {place: TrialResult((scores[place],)) for place in live}))
        found.append(sorted(scores[place] for place in live))
    return found


def orders():
    """Orders of the scores: ascending, descending and others."""
    rng = np.random.default_rng(0)
    return [sorted(SCORES), sorted(SCORES, reverse=True), *(rng.permutation(SCORES).tolist() for _ in range(4))]


@pytest.mark.parametrize("pruner", ["halving", "median", "none"])
@pytest.mark.parametrize("earlier", [(), tuple(range(12))])
def test_the_order_of_a_batch_does_not_change_its_survivors(pruner, earlier):
    found = [survivors(pruner, order, 3, earlier) for order in orders()]
    assert all(a == b for a, b in itertools.pairwise(found))


def test_halving_keeps_the_better_half_at_powers_of_two():
    first, second, third = survivors("halving", SCORES, 3)
    assert first == sorted(SCORES)[-4:]
    assert second == sorted(SCORES)[-2:]
    assert third == second


def test_halving_compares_with_earlier_trials_too():
    [better] = survivors("halving", SCORES, earlier=(20.0,) * 4)
    [worse] = survivors("halving", SCORES, earlier=(-20.0,) * 4)
    assert len(better) < 4 < len(worse)
