"""Trials trained together: each has its own settings, equals itself trained alone, and ends alone."""

import jax
import numpy as np
import pytest

from proximo.config import override
from proximo.run.evaluation import JUDGEMENT_STREAM, SELECTION_STREAM, TUNING_STREAM
from proximo.run.program import make_program
from proximo.run.reuse import environment
from proximo.tune import trials as module
from proximo.tune.evaluated import Pace, bad_source, borders, reached
from proximo.tune.host_trials import HostTrial
from proximo.tune.trials import DeviceBatch, make_batch, settings_of_trials

from helpers import compilations, difference
from studies import Watching, config

pytestmark = pytest.mark.slow  # the gate has its limit of time: run by hand

DIFFERENT = (
    {"learning_rate": 0},
    {"learning_rate": 3e-2},
    {"learning_rate": "linear(1e-2, 0)", "gamma": 0.5, "gae_lambda": 0.3, "clip_eps": 0.05, "ent_coef": 0.1, "vf_coef": 2.0,
     "max_grad_norm": 0.01},
)  # fmt: skip


def judged(batch, evaluations=2, prune=lambda number, now: ()):
    """What every evaluation gave; ``prune(number, now)`` names those that do not go on."""
    seen = []

    def judge(number, now):
        seen.append((number, now))
        return [trial for trial, result in now.items() if not result.failure and trial not in prune(number, now)]

    batch.train(evaluations, judge)
    return seen


@pytest.fixture(scope="module")
def together():
    """Three settings in one program of that width."""
    return judged(DeviceBatch([config(**d) for d in DIFFERENT], [100], 3, Watching()))


def test_settings_of_each_trial_reach_the_learner(together):
    still, fast = (together[-1][1][i].returns for i in range(2))
    assert together[0][1][0].returns == still, "a learning rate of 0 learns nothing, beside one that learns"
    assert np.mean(fast) > np.mean(still) + 1


def test_a_trial_among_others_equals_the_same_settings_trained_alone():
    configs = [config(**d) for d in DIFFERENT]
    program = make_program(configs[0], environment(configs[0]), stacked=True)
    state = settings_of_trials(program, program.start([100] * 3), configs)
    program.compile(state)
    state, _ = program.advance(state, program.capacity)
    for i, c in enumerate(configs):
        alone = make_program(c, environment(c), stacked=False)
        single = alone.start([100])
        alone.compile(single)
        single, _ = alone.advance(single, alone.capacity)
        parts = [jax.tree.map(lambda x: x, s.learner.policy) for s in (program.member(state, i), single)]
        assert difference(*parts) < 1e-5
        assert difference(program.member(state, i).learner.hyperparameters, single.learner.hyperparameters) == 0
        other = program.member(state, (i + 1) % 3).learner.policy
        assert difference(parts[0], other) > 1e-4, "the comparison sees another trial's settings"


def test_a_trial_of_several_seeds_is_one_with_each_of_them(together):
    """As in a final round; of the places that are left over nothing is told."""
    batch = DeviceBatch([config(**DIFFERENT[2])], [100, 101, 102], 1, Watching())
    (number, now), last = judged(batch)
    assert (number, set(now), last[1][0].final) == (1, {0}, True)
    assert last[1][0].returns[0] == pytest.approx(together[-1][1][2].score, abs=0.2)
    assert len(last[1][0].returns) == 3
    padded = judged(DeviceBatch([config(**DIFFERENT[1])], [100], 3, Watching()))
    assert [set(now) for _, now in padded] == [{0}, {0}]
    assert padded[-1][1][0] == together[-1][1][1]


def test_the_second_batch_of_the_same_static_settings_compiles_nothing(together):
    with compilations() as compiled:
        judged(DeviceBatch([config(learning_rate=r, gamma=g) for r, g in ((1e-3, 0.9), (2e-3, 0.8), (0, 1))], [7], 3, Watching()))
    assert compiled == []


def test_a_trial_that_nan_ends_ends_alone():
    batch = DeviceBatch([config(learning_rate=1e-3), config(learning_rate=1e38)], [100], 3, Watching())
    seen = judged(batch)
    assert "NaN or infinity in the" in seen[0][1][1].failure
    assert "(seed 100)" in seen[0][1][1].failure
    assert seen[0][1][0].failure == ""
    assert set(seen[-1][1]) == {0}
    assert seen[-1][1][0].final


def test_pruned_trials_are_judged_no_more_and_the_others_are_as_without():
    configs = [config(learning_rate=r) for r in (1e-4, 1e-3, 1e-2)]
    whole = judged(DeviceBatch(configs, [100], 3, Watching()), 4)
    pruned = judged(DeviceBatch(configs, [100], 3, Watching()), 4, prune=lambda number, now: {0} if number == 2 else {})
    assert [sorted(now) for _, now in pruned] == [[0, 1, 2], [0, 1, 2], [1, 2], [1, 2]]
    assert pruned[-1][1][2] == whole[-1][1][2]


def test_places_of_pruned_trials_are_given_up_only_where_that_pays(monkeypatch):
    configs = [config(learning_rate=r) for r in (1e-4, 1e-3, 1e-2)]

    def train():
        batch = DeviceBatch(configs, [100], 3, Watching())
        seen = judged(batch, 4, prune=lambda number, now: {0, 1} if number == 1 else {})
        return batch.places, seen[-1][1][2]

    places, whole = train()
    assert len(places) == 3, "eight updates are done before anything is compiled"
    monkeypatch.setattr(module, "LEAST_COMPILE_SECONDS", 0.0)
    monkeypatch.setattr(Pace, "seconds_per_update", 1e9)
    places, narrow = train()
    assert places == [(2, 100)]
    assert narrow.score == pytest.approx(whole.score, abs=0.2)


def test_the_pace_is_the_mean_and_not_that_of_a_last_short_call():
    pace = Pace()
    assert pace.seconds_per_update == 0
    pace.add(10.0, 100)
    pace.add(1.0, 1)
    assert pace.seconds_per_update == pytest.approx(11 / 101)


def test_evaluations_are_spaced_evenly_and_the_last_is_the_end():
    assert borders(config(), 4) == [(1, 2), (2, 4), (3, 6), (4, 8)]
    assert borders(override(config(), {"total_steps": 256}), 4) == [(2, 1), (4, 2)]
    assert borders(override(config(), {"total_steps": 128}), 4) == [(4, 1)]


def test_trials_are_judged_on_episodes_that_nothing_else_is_judged_on():
    keys = [jax.random.fold_in(jax.random.key(100), s) for s in (SELECTION_STREAM, JUDGEMENT_STREAM, TUNING_STREAM)]
    assert len({tuple(np.asarray(jax.random.key_data(k))) for k in keys}) == 3


def test_an_environment_of_the_host_trains_seed_after_seed_and_is_pruned_within_the_first():
    settings = {"num_envs": 2, "num_steps": 8, "num_minibatches": 1, "total_steps": 64, "eval_episodes": 2, "num_workers": 0}
    host = override(config(), {"id": "gym_toys:Countdown", **settings})
    batch = make_batch([host], [100, 101], 1, Watching())
    assert isinstance(batch, HostTrial)
    seen = judged(batch)
    assert [(number, len(now[0].returns), now[0].final) for number, now in seen] == [
        (1, 1, False),
        (2, 1, False),
        (3, 2, False),
        (4, 2, True),
    ]
    assert seen[-1][1][0].score == 5.0
    assert len(judged(make_batch([host], [100, 101], 1, Watching()), prune=lambda number, now: {0})) == 1


def test_returns_that_are_no_numbers_are_a_failure():
    assert reached([1.0, float("nan")], True).failure == "an evaluation gave NaN or infinity"
    assert reached([1.0, 3.0], True).score == 2.0


def test_what_is_not_finite_is_traced_to_its_first_source():
    metrics = {f"bad/{name}": np.zeros((2, 3)) for name in ("observation", "reward", "loss", "gradient", "parameters")}
    metrics["bad/reward"][1, 1:] = 1
    metrics["bad/loss"][1, 2] = 1
    assert (bad_source(metrics, 0), bad_source(metrics, 1)) == ("", "reward")
