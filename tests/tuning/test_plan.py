"""The plan of a study: its mistakes, its seeds, its draws, and how its folder is found again."""

from dataclasses import replace

import optuna
import pytest

from proximo.config import override
from proximo.config.validation import validate
from proximo.errors import CheckpointError, ConfigError
from proximo.tuning.plan import Record, draw, open_journal, read_plan
from proximo.tuning.space import drawn_settings

from studies import config, plan

SPACE = "gamma: [0.9, 0.99]\n"


@pytest.mark.parametrize(
    ("space", "settings", "search", "sentence"),
    [
        (SPACE, {}, {"trials": 0}, "trials = 0: expected a whole number of 1 … 100000."),
        (SPACE, {}, {"seeds": 1.5}, "seeds = 1.5: expected a whole number of 1 … 100."),
        (SPACE, {}, {"pruner": "medium"}, "pruner = 'medium': expected one of median, halving, none (did you mean 'median'?)."),
        (SPACE, {"id": "gym_toys:Countdown"}, {}, "together = 3: gym_toys:Countdown is a Gymnasium environment, where trials train one"),
        (SPACE, {"eval_episodes": 0}, {}, "eval_episodes = 0: trials are compared by evaluations"),
        (SPACE, {}, {"fixed": ["gamma"]}, "There is nothing to search: the space is empty, or every setting of it was given as a flag."),
        ("", {}, {}, "There is nothing to search"),
        ("- gamma", {}, {}, "expected settings with their values, such as `num_steps: [64, 128]`, found list."),
        ("gamma: [0.9, 0.99]\ngamma: [1]", {}, {}, "is not valid YAML: gamma is given 2 times"),
        ("num_minibatches: [3, 7]", {}, {}, "can be trained; the last one: num_minibatches = "),
        ("optimizer_settings.weight_decay: [0.1]", {}, {}, "the last one: optimizer_settings.weight_decay = 0.1 has no effect with"),
    ],
)  # fmt: skip
def test_mistake_raises_one_sentence_before_anything_runs(tmp_path, space, settings, search, sentence):
    with pytest.raises(ConfigError) as error:
        plan(tmp_path, space, override(config(), settings), **search)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_seeds_are_disjoint_and_begin_at_100_unless_one_is_given(tmp_path):
    base = override(config(), {"seed": 3, "seeds": 10})
    p = plan(tmp_path, SPACE, base, seeds=2, together=4)
    assert [list(p.seeds_of(kind)) for kind in ("trial", "final", "test")] == [[100, 101], [*range(102, 110)], [*range(110, 118)]]
    assert (p.base.run.seeds, p.base.run.seeds_mode) == (1, "auto")
    assert plan(tmp_path, SPACE, base, fixed=["seed"]).seeds_of("trial")[0] == 3


def test_fixed_minibatch_size_applies_to_every_trial(tmp_path):
    base = validate(override(config(), {"minibatch_size": 64}))
    p = plan(tmp_path, "num_steps: [16, 32, 64]\nnum_minibatches: [1, 2]\ngamma: [0.9, 0.99]\n", base, ["minibatch_size"])
    assert list(p.space) == ["num_steps", "gamma"]
    for steps in (16, 32, 64):
        trial = p.config(Record(1, drawn_settings({"num_steps": steps, "gamma": 0.9}, p.space, p.base) | p.constant)).ppo
        assert (trial.num_steps, trial.num_minibatches) == (steps, 8 * steps // 64)


def test_plan_is_read_from_the_journal_as_it_was_stored(tmp_path):
    p = plan(tmp_path, SPACE + "learning_rate: {low: 1e-4, high: 1e-1, log: true}\n", trials=9, fixed=["minibatch_size"])
    journal = open_journal(tmp_path)
    p.store(journal)
    assert read_plan(open_journal(tmp_path), tmp_path) == p
    replace(p, trials=12).store(journal)
    assert read_plan(open_journal(tmp_path), tmp_path).trials == 12


@pytest.mark.parametrize(
    "stored", [None, {}, {"base": {"ppo": {"gama": 1}}, "space": {}}, {"base": {}, "space": {"gamma": [0.9]}, "trails": 3}]
)
def test_study_of_another_version_is_refused_with_a_way_to_go_on(tmp_path, stored):
    journal = open_journal(tmp_path)
    if stored is not None:
        journal.set_user_attr("plan", stored)
    with pytest.raises(CheckpointError) as error:
        read_plan(journal, tmp_path)
    assert str(error.value) == (
        f"{tmp_path} was written by another version of proximo and cannot be continued. Start a new study from its best settings, "
        f"with --config {tmp_path}/preset.yaml."
    )


DRAWN = """learning_rate: {low: 1e-5, high: 1e-1, log: true}
num_steps: [16, 32, 64, 128]
normalize_reward: [false, true]
num_minibatches: [2, 3]
"""


def filled(p, count, score):
    """A study of ``count`` random trials with ``score(parameters)``."""
    study = optuna.create_study(direction="maximize")
    for number in range(count):
        _, trial = draw(p, study, number, {}, at_random=True)
        study.tell(trial, score(trial.params))
    return study


def rate(parameters):
    return -abs(parameters["learning_rate"] - 1e-3) + parameters["normalize_reward"]


def test_draw_can_be_trained_and_depends_on_seed_number_and_trials_only(tmp_path):
    p = plan(tmp_path, DRAWN)
    study = filled(p, 12, rate)
    assert {t.params["num_minibatches"] for t in study.trials if t.state.name == "COMPLETE"} == {2}, "3 divides no rollout"
    draws = [draw(p, filled(p, 12, rate), 12, {"num_steps": 32})[0] for _ in range(2)]
    assert draws[0] == draws[1]
    assert draws[0]["num_steps"] == 32
    other = replace(p, base=replace(p.base, run=replace(p.base.run, seed=101)))
    assert draw(other, filled(p, 12, rate), 12, {"num_steps": 32})[0] != draws[0]
    rates = [draw(p, study, number, {"num_steps": 16, "normalize_reward": True})[0]["learning_rate"] for number in range(12, 20)]
    assert len(set(rates)) == 8
