"""Which runs are judged together."""

import pytest

from made_runs import made_group, made_run
from proximo.errors import ConfigError
from proximo.report.grouping import sections_of, setting_of
from proximo.report.read import read_runs


@pytest.fixture
def runs(tmp_path):
    """Two cells of two learning rates, two seeds each; and another environment."""

    def made():
        for memory in ("gru", "lstm"):
            for rate in ("0.001", "0.0003"):
                name = f"{memory}-{rate}"
                made_group(tmp_path / name, seeds=2, memory=memory, learning_rate=rate, name=name)
                yield str(tmp_path / name)
        yield str(made_run(tmp_path / "other", env="gymnax:Acrobot-v1"))

    return read_runs(list(made()), tmp_path)


def labels(section):
    return [group.label for group in section.groups]


def test_runs_of_equal_settings_are_one_group_and_environments_apart(runs):
    cart, other = sections_of(runs)
    assert (cart.environment, other.environment) == ("gymnax:CartPole-v1", "gymnax:Acrobot-v1")
    assert cart.differing == ["learning_rate", "memory"]
    assert labels(cart) == [f"{m}-{rate}" for m in ("gru", "lstm") for rate in ("0.001", "0.0003")]
    assert [len(group.runs) for group in cart.groups] == [2, 2, 2, 2]
    assert labels(other) == ["other"]


@pytest.mark.parametrize("by", ["memory", "network.memory"])
def test_grouping_by_a_setting_reports_mixed_other_settings(runs, by):
    cart = sections_of(runs, [by])[0]
    assert labels(cart) == ["memory=gru", "memory=lstm"]
    assert [len(group.runs) for group in cart.groups] == [4, 4]
    assert cart.groups[0].mixed == ["learning_rate"]
    assert cart.groups[0].setting("learning_rate") == "0.001 | 0.0003"


def test_groups_without_unique_names_are_labelled_by_settings(tmp_path):
    def found(*names):
        paths = [
            made_run(
                tmp_path / "-".join(names) / str(i) / (name or f"r{i}"),
                memory=memory,
                total_steps=1024 * 1000 * (i + 1),
                name=name,
            )
            for i, (name, memory) in enumerate(zip(names, ("gru", "lstm"), strict=True))
        ]
        return labels(sections_of(read_runs(map(str, paths), tmp_path))[0])

    by_settings = ["total_steps=1,024,000, memory=gru", "total_steps=2,048,000, memory=lstm"]
    assert found("", "") == found("x", "") == found("same", "same") == by_settings
    assert found("long", "short") == ["long", "short"]


def test_individually_named_seeds_are_grouped_by_settings(tmp_path):
    paths = [made_run(tmp_path / f"{m}{i}", memory=m, seed=i, name=f"{m}{i}") for m in ("gru", "lstm") for i in range(2)]
    assert labels(sections_of(read_runs(map(str, paths), tmp_path))[0]) == ["memory=gru", "memory=lstm"]


@pytest.mark.parametrize(
    ("setting", "differing"),
    [
        ({"eval_env": "gymnax:Acrobot-v1"}, "eval_env"),
        ({"eval_env_settings": {"gravity": 5}}, "eval_env_settings.gravity"),
        ({"eval_max_steps": 20}, "eval_max_steps"),
    ],
)
def test_runs_that_are_evaluated_differently_are_not_averaged(tmp_path, setting, differing):
    paths = [made_run(tmp_path / "a"), made_run(tmp_path / "b", **setting)]
    (section,) = sections_of(read_runs(map(str, paths), tmp_path))
    assert section.differing == [differing]
    assert [len(group.runs) for group in section.groups] == [1, 1]


def test_frequency_of_evaluations_and_checkpoints_separates_no_runs(tmp_path):
    paths = [made_run(tmp_path / "a"), made_run(tmp_path / "b", eval_every=1024, eval_episodes=3, checkpoint_every=2048)]
    (section,) = sections_of(read_runs(map(str, paths), tmp_path))
    assert [len(group.runs) for group in section.groups] == [2]


def test_numeric_labels_are_sorted_as_numbers(runs):
    assert labels(sections_of(runs[2:], ["learning-rate"])[0]) == ["learning_rate=0.0003", "learning_rate=0.001"]


def test_by_name_every_run_has_its_folder_as_its_group(runs):
    assert labels(sections_of(runs, ["name"])[0]) == ["gru-0.001", "gru-0.0003", "lstm-0.001", "lstm-0.0003"]


def test_runs_can_be_grouped_by_two_settings_and_by_seed(runs):
    assert len(sections_of(runs, ["memory", "learning_rate"])[0].groups) == 4
    assert labels(sections_of(runs, ["seed"])[0]) == ["seed=0", "seed=1"]


def test_settings_without_effect_on_learning_do_not_split_groups(tmp_path):
    paths = [made_run(tmp_path / f"r{i}", seed=i, eval_every=10_000 * (i + 1), keep_checkpoints=2 + i) for i in range(2)]
    [section] = sections_of(read_runs(map(str, paths), tmp_path))
    assert (section.differing, len(section.groups)) == ([], 1)
    assert labels(section) == ["gymnax:CartPole-v1"]


def test_entries_of_a_mapping_are_separate_settings(tmp_path):
    paths = [made_run(tmp_path / f"r{i}", env_settings={"size": 3 + i, "same": 1}) for i in range(2)]
    runs = read_runs(map(str, paths), tmp_path)
    [section] = sections_of(runs)
    assert section.differing == ["env_settings.size"]
    assert labels(section) == ["env_settings.size=3", "env_settings.size=4"]
    assert len(sections_of(runs, ["env_settings.same"])[0].groups) == 1


def test_runs_with_many_differences_are_labelled_by_name(tmp_path):
    odd = {"gamma": 0.9, "gae_lambda": 0.8, "num_epochs": 7, "max_grad_norm": 3.0}
    paths = [made_run(tmp_path / "plain"), made_run(tmp_path / "odd", **odd)]
    assert labels(sections_of(read_runs(map(str, paths), tmp_path))[0]) == ["plain", "odd"]


def test_labels_are_never_the_same_twice(tmp_path):
    odd = {"gamma": 0.9, "gae_lambda": 0.8, "num_epochs": 7, "max_grad_norm": 3.0}
    paths = [made_run(tmp_path / "a" / "r", **odd), made_run(tmp_path / "b" / "r", **odd | {"max_grad_norm": 4.0})]
    paths.append(made_run(tmp_path / "c" / "r"))
    found = labels(sections_of(read_runs(map(str, paths), tmp_path))[0])
    assert len(set(found)) == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("memry", r"Unknown setting 'memry' for --by \(did you mean 'memory'\?\)"),
        ("ppo.memory", r"Unknown setting 'ppo.memory' for --by \(did you mean 'network.memory'\?\)"),
        ("lr", "lr is called learning_rate here"),
        ("env_settings.none", "Unknown setting 'env_settings.none' for --by"),
    ],
)
def test_an_unknown_setting_names_the_nearest(runs, text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        setting_of(text, runs)
