"""The plan of a study, and how its folder is found again."""

import os

import pytest
import yaml

from proximo.config import override
from proximo.config.validation import validate
from proximo.errors import CheckpointError, ConfigError
from proximo.storage.named_folders import find_folder
from proximo.tuning.plan import FORMAT, PLAN, STUDIES, StudyPlan, read_plan
from proximo.tuning.planning import make_plan

from studies import ENV, config, plan

SPACE = "gamma: [0.9, 0.99]\n"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"trials": 0}, "trials = 0: expected a whole number, 1 … 100,000."),
        ({"seeds": 1.5}, "seeds = 1.5: expected a whole number, 1 … 100."),
        ({"finalists": -1}, "finalists = -1: expected a whole number, 0 … 100."),
        ({"pruner": "medium"}, "pruner = 'medium': expected one of median, halving, none (did you mean 'median'?)."),
    ],
)
def test_invalid_number_raises_one_sentence(tmp_path, changes, sentence):
    with pytest.raises(ConfigError) as error:
        plan(tmp_path, SPACE, **changes)
    assert str(error.value) == sentence


def test_seeds_that_do_not_exist_raise(tmp_path):
    (tmp_path / "s.yaml").write_text(SPACE)
    with pytest.raises(
        ConfigError, match=r"^seed = 4294967290: the study needs seeds up to \d+, and the largest is 4294967295\.$"
    ):
        make_plan(config(seed=2**32 - 6), ("seed",), tmp_path / "s.yaml")


@pytest.mark.parametrize(
    ("space", "settings", "fixed", "sentence"),
    [
        (SPACE, {"eval_episodes": 0}, (), "eval_episodes = 0: trials are compared by evaluations"),
        (SPACE, {}, ("gamma",), "There is nothing to search: the space is empty, or every setting of it was given as a flag."),
        ("", {}, (), "There is nothing to search"),
        ("- gamma", {}, (), "expected settings with their values, such as `num_steps: [64, 128]`, found list."),
        ("gamma: [0.9, 0.99]\ngamma: [1]", {}, (), "is not valid YAML: gamma is given 2 times"),
        ("num_minibatches: [3, 7]", {}, (), "can be trained; the last one: num_minibatches = "),
        ("weight_decay: [0.1]", {}, (), "can be trained; the last one: weight_decay = 0.1 needs optimizer = adamw"),
    ],
)
def test_contradictory_plan_raises_one_sentence_before_anything_runs(tmp_path, space, settings, fixed, sentence):
    path = tmp_path / "s.yaml"
    path.write_text(space)
    with pytest.raises(ConfigError) as error:
        make_plan(config(**settings), fixed, path)
    assert sentence in str(error.value)


def test_a_missing_space_file_is_named_with_its_flag(tmp_path):
    with pytest.raises(ConfigError, match=r"Cannot read --space .*none.yaml \(No such file or directory\)"):
        make_plan(config(), (), tmp_path / "none.yaml")


def test_seeds_begin_at_100_unless_one_is_given(tmp_path):
    (tmp_path / "s.yaml").write_text(SPACE)
    base = override(config(), {"seed": 3, "seeds": 10})
    p = make_plan(base, (), tmp_path / "s.yaml", seeds=2, together=4)
    assert (p.trial_seeds, p.final_seeds) == ([100, 101], list(range(102, 110)))
    assert (p.base.run.seeds, p.base.run.seeds_mode) == (1, "auto")
    assert make_plan(base, {"seed": "3"}, tmp_path / "s.yaml").trial_seeds == [3, 4]


def test_fixed_minibatch_size_is_that_of_every_trial(tmp_path):
    (tmp_path / "s.yaml").write_text("num_steps: [16, 32, 64]\nnum_minibatches: [1, 2]\ngamma: [0.9, 0.99]\n")
    base = validate(override(config(), {"minibatch_size": 64}))
    p = make_plan(base, {"minibatch_size": 64}, tmp_path / "s.yaml")
    assert p.space.names == ("num_steps", "gamma")
    p.write(tmp_path)
    assert yaml.safe_load((tmp_path / PLAN).read_text())["format"] == 2
    for each in (p, read_plan(tmp_path)):
        assert each == p
        for rank, steps in enumerate((16, 32, 64)):
            trial = each.config(1, each.space.settings({"num_steps.rank": rank, "gamma": 0.9})).ppo
            assert (trial.num_steps, trial.num_minibatches) == (steps, 8 * steps // 64)


def test_trials_train_together_in_jax_and_serially_on_gymnasium(tmp_path):
    assert plan(tmp_path, SPACE, together=None).together == 8
    host = override(config(), {"id": "gym_toys:Countdown"})
    assert plan(tmp_path, SPACE, host, together=None).together == 1


def stored(tune_dir, tmp_path, *names):
    for i, name in enumerate(names):
        p = plan(tmp_path, SPACE)
        p.write(tune_dir / name)
        os.utime(tune_dir / name / PLAN, (1000 + i, 1000 + i))
    return tune_dir


def test_study_is_found_by_path_name_and_last(tmp_path):
    tune_dir = stored(tmp_path / "tune", tmp_path, "a/one", "b/two", "b/one")
    for text in (str(tune_dir / "b" / "two"), "two", "b/two"):
        assert find_folder(text, tune_dir, STUDIES) == tune_dir / "b" / "two"
    assert find_folder("last", tune_dir, STUDIES) == tune_dir / "b" / "one"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("one", "The name 'one' fits 2 studies: a/one, b/one. Add the environment, as in <env>/one."),
        ("twoo", "No study 'twoo': looked for a folder of that path, and for that name among the 3 studies in "),
        ("", "No study ''"),
    ],
)
def test_unknown_study_raises_one_sentence(tmp_path, text, sentence):
    tune_dir = stored(tmp_path / "tune", tmp_path, "a/one", "b/two", "b/one")
    with pytest.raises(CheckpointError) as error:
        find_folder(text, tune_dir, STUDIES)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_studies_are_reported(tmp_path):
    with pytest.raises(CheckpointError, match=r"There is no study in .*: start one with `proximo tune ENV`"):
        find_folder("last", tmp_path, STUDIES)


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda c: c | {"format": FORMAT + 1}, "is of format 3, and this version of proximo knows 2: update it."),
        (lambda c: c | {"space": {"gama": [1]}}, "is damaged, or was edited: Unknown setting 'gama'"),
        (lambda c: {"format": 1}, "is damaged, or was edited: 'base'"),
        (lambda c: [1], "is damaged, or was edited: "),
        (lambda c: c | {"search": {"trails": 3}}, "is damaged, or was edited: "),
    ],
)
def test_damaged_plan_raises_one_sentence(tmp_path, edit, sentence):
    plan(tmp_path, SPACE).write(tmp_path)
    content = yaml.safe_load((tmp_path / PLAN).read_text())
    (tmp_path / PLAN).write_text(yaml.safe_dump(edit(content)))
    with pytest.raises(CheckpointError) as error:
        read_plan(tmp_path)
    assert sentence in str(error.value)


def test_a_plan_cannot_execute_code(tmp_path):
    (tmp_path / PLAN).write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(CheckpointError, match="is not valid YAML"):
        read_plan(tmp_path)


def test_the_environment_of_a_plan_is_the_base_one(tmp_path):
    assert isinstance(plan(tmp_path, SPACE), StudyPlan)
    assert plan(tmp_path, SPACE).base.env.id == ENV
