"""What is drawn follows from the trials before and the seed alone, and leads to what was good."""

import optuna
import pytest

from proximo.tuning.planning import make_plan
from proximo.tuning.record import open_study
from proximo.tuning.sampling import draw, explores, make_pruner, make_sampler, shared_part

from studies import config

SPACE = "learning_rate: {low: 1e-5, high: 1e-1, log: true}\nnum_steps: [16, 32, 64, 128]\nnormalize_reward: [false, true]\n"


@pytest.fixture
def space(tmp_path):
    (tmp_path / "s.yaml").write_text(SPACE)
    return make_plan(config(), (), tmp_path / "s.yaml").space


def filled(folder, space, count, score):
    """A study of ``count`` random trials with ``score(parameters)``."""
    folder.mkdir(exist_ok=True)
    study = open_study(folder, make_pruner("none"))
    study.sampler = optuna.samplers.RandomSampler(seed=1)
    for _ in range(count):
        trial = study.ask()
        study.tell(trial, score(draw(trial, space)))
    return study


def rate(parameters):
    return -abs(parameters["learning_rate"] - 1e-3) + parameters["normalize_reward"]


def test_a_draw_depends_on_seed_number_and_trials_only(tmp_path, space):
    draws = []
    for folder in "ab":
        study = filled(tmp_path / folder, space, 12, rate)
        study.sampler = make_sampler(100, 12, {"num_steps.rank": 1})
        draws.append(draw(study.ask(), space))
    assert draws[0] == draws[1]
    assert draws[0]["num_steps.rank"] == 1
    others = filled(tmp_path / "c", space, 12, rate)
    others.sampler = make_sampler(101, 12, {"num_steps.rank": 1})
    assert draw(others.ask(), space) != draws[0]


def test_shared_part_is_drawn_near_good_trials_without_adding_any(tmp_path, space):
    study = filled(tmp_path / "a", space, 40, lambda p: float(p["num_steps.rank"] == 2) + p["normalize_reward"])
    names = {"num_steps.rank", "normalize_reward"}
    found = [shared_part(study, space, names, 100, n, at_random=False, fits=lambda s: True) for n in range(40, 60)]
    assert all(set(parameters) == names for parameters in found)
    assert sum(p == {"num_steps.rank": 2, "normalize_reward": True} for p in found) > 10
    assert len(study.trials) == 40
    random = [shared_part(study, space, names, 100, n, at_random=True, fits=lambda s: True) for n in range(40, 60)]
    assert sum(p == {"num_steps.rank": 2, "normalize_reward": True} for p in random) < 8
    assert [batch for batch in range(1, 13) if explores(batch)] == [1, 2, 3, 7, 11]


def test_invalid_draws_are_repeated(tmp_path, space):
    study = filled(tmp_path / "a", space, 12, rate)
    for number in range(12, 20):
        found = shared_part(
            study, space, {"num_steps.rank"}, 100, number, at_random=number % 2 == 0, fits=lambda s: s["num_steps"] == 16
        )
        assert found == {"num_steps.rank": 0}


def test_a_batch_is_spread_and_not_one_trial_many_times(tmp_path, space):
    study = filled(tmp_path / "a", space, 20, rate)
    rates = []
    for number in range(20, 28):
        study.sampler = make_sampler(100, number, {"num_steps.rank": 1, "normalize_reward": True})
        rates.append(draw(study.ask(), space)["learning_rate"])
    assert len(set(rates)) == 8


def test_search_comes_nearer_than_random_draws(tmp_path, space):
    study = filled(tmp_path / "a", space, 12, rate)
    for number in range(12, 48):
        study.sampler = make_sampler(100, number, {})
        trial = study.ask()
        study.tell(trial, rate(draw(trial, space)))
    found = [t.params for t in study.trials[12:]]
    assert sum(p["normalize_reward"] for p in found) > 21, "by chance 18 of 36"
    assert sum(1e-4 < p["learning_rate"] < 1e-2 for p in found) > 23
