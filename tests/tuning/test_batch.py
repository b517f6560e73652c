"""Trials trained together: each has its own settings, equals itself trained alone, and ends alone."""

import functools
import re

import jax
import numpy as np
import pytest

from proximo.collect.environment import environment
from proximo.config import override
from proximo.errors import ConfigError
from proximo.training.backend import TimedCalls
from proximo.training.backends import make_backend
from proximo.tuning import batch as module
from proximo.tuning.batch import Batch, with_hyperparameters

from helpers import difference
from studies import Watching, config

pytestmark = pytest.mark.slow  # the gate has its limit of time: run by hand

OTHER = {"gamma": 0.5, "gae_lambda": 0.3, "clip_eps": 0.05, "ent_coef": 0.1, "vf_coef": 2.0, "max_grad_norm": 0.01}
DIFFERENT = {"learning_rate": 0}, {"learning_rate": 3e-2}, {"learning_rate": "linear(1e-2, 0)", **OTHER}


def make(configs, seeds=(100,), width=3):
    return Batch(configs, seeds, width, Watching())


def trained(batch, evaluations=2, prune=lambda number: set()):
    """The number and the results of every evaluation. Trials that fail do not continue, nor those that ``prune(number)`` returns."""
    seen = []
    for _, number, results in batch.train(evaluations):
        if results:
            seen.append((number, results))
            batch.live = {trial for trial, result in results.items() if isinstance(result, list)} - prune(number)
    return seen


@pytest.fixture(scope="module")
def together():
    """Three settings in one program of that width."""
    return trained(make([config(**d) for d in DIFFERENT]))


def test_a_trial_among_others_equals_the_same_settings_trained_alone():
    configs = [config(**d) for d in DIFFERENT]
    program = make_backend(configs[0], environment(configs[0]), stacked=True)
    state = program.prepare(lambda: with_hyperparameters(program.start([100] * 3), program.filled(configs)), 3)
    state, _ = program.advance(state, program.config.updates_per_call)
    for i, c in enumerate(configs):
        alone = make_backend(c, environment(c), stacked=False)
        single = alone.prepare(functools.partial(alone.start, [100]))
        single, _ = alone.advance(single, alone.config.updates_per_call)
        parts = [jax.tree.map(lambda x: x, s.learner.policy) for s in (program.seed_state(state, i), single)]
        assert difference(*parts) < 1e-5
        assert difference(program.seed_state(state, i).learner.hyperparameters, single.learner.hyperparameters) == 0
        other = program.seed_state(state, (i + 1) % 3).learner.policy
        assert difference(parts[0], other) > 1e-4, "the comparison sees another trial's settings"


def test_trial_of_several_seeds_trains_each_of_them(together):
    """As in a final round. Slots that are left over have no results."""
    (number, now), last = trained(make([config(**DIFFERENT[2])], [100, 101, 102], 1))
    assert (number, set(now), len(last[1][0])) == (1, {0}, 3)
    assert last[1][0][0] == pytest.approx(np.mean(together[-1][1][2]), abs=0.2)
    padded = trained(make([config(**DIFFERENT[1])]))
    assert [set(now) for _, now in padded] == [{0}, {0}]
    assert padded[-1][1][0] == together[-1][1][1]


def test_trials_of_two_programs_are_no_batch():
    with pytest.raises(ConfigError, match="3 trials of a batch need 2 compiled programs, expected 1"):
        make([config(), config(gamma=0.9), config(num_steps=8)])


def test_trial_stopped_by_nan_stops_alone():
    seen = trained(make([config(learning_rate=1e-3), config(learning_rate=1e38)]))
    assert re.fullmatch(r"NaN or infinity in the .* \(seed 100\)", seen[0][1][1])
    assert [isinstance(now[0], list) for _, now in seen] == [True, True]
    assert set(seen[-1][1]) == {0}


def test_pruned_trials_are_not_evaluated_and_others_stay_equal():
    configs = [config(learning_rate=r) for r in (1e-4, 1e-3, 1e-2)]
    whole = trained(make(configs), 4)
    pruned = trained(make(configs), 4, prune=lambda number: {0} if number == 2 else set())
    assert [sorted(now) for _, now in pruned] == [[0, 1, 2], [0, 1, 2], [1, 2], [1, 2]]
    assert pruned[-1][1][2] == whole[-1][1][2]


def test_slots_of_pruned_trials_are_freed_only_if_worthwhile(monkeypatch):
    def train():
        batch = make([config(learning_rate=r) for r in (1e-4, 1e-3, 1e-2)])
        seen = trained(batch, 4, prune=lambda number: {0, 1} if number == 1 else set())
        return batch.slots, np.mean(seen[-1][1][2])

    places, whole = train()
    assert len(places) == 3, "eight updates are done before anything is compiled"
    monkeypatch.setattr(module, "MIN_COMPILE_SECONDS", 0.0)
    monkeypatch.setattr(TimedCalls, "seconds_per_update", 1e9)
    assert train() == ([(2, 100)], pytest.approx(whole, abs=0.2))


@pytest.mark.parametrize(("updates", "spaced"), [(8, [(1, 2), (2, 4), (3, 6), (4, 8)]), (2, [(2, 1), (4, 2)]), (1, [(4, 1)])])
def test_evaluations_are_spaced_evenly_and_the_last_is_the_end(updates, spaced):
    batch = make([config(total_steps=128 * updates)])
    assert [(number, round(share * updates)) for share, number, results in batch.train(4) if results] == spaced


def test_gymnasium_trial_trains_seeds_serially_and_is_pruned_within_one():
    settings = {"num_envs": 2, "num_steps": 8, "num_minibatches": 1, "total_steps": 64, "eval_episodes": 2, "num_workers": 0}
    gymnasium = override(config(), {"id": "gym_toys:Countdown", **settings})
    seen = trained(make([gymnasium], [100, 101], 1))
    assert [(number, len(now[0])) for number, now in seen] == [(1, 1), (2, 1), (3, 2), (4, 2)]
    assert np.mean(seen[-1][1][0]) == 5.0
    assert len(trained(make([gymnasium], [100, 101], 1), prune=lambda number: {0})) == 1
