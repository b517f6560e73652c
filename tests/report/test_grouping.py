"""Which runs are compared, and how their groups are called."""

import pytest

from made_runs import made_group, made_run
from proximo.report.runs import differing, read_runs, sections_of

ODD = {"gamma": 0.9, "gae_lambda": 0.8, "num_epochs": 7, "max_grad_norm": 3.0}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two cells of two learning rates, two seeds each; and another environment."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("gru-0.001", "gru-0.0003", "lstm-0.001", "lstm-0.0003"):
        memory, _, rate = name.partition("-")
        made_group(folder / name, seeds=2, memory=memory, learning_rate=rate, name=name)
    made_run(folder / "other", env="gymnax:Acrobot-v1")
    return read_runs([str(folder / n) for n in ("gru-0.001", "gru-0.0003", "lstm-0.001", "lstm-0.0003", "other")], folder)


def grouped(paths, folder):
    [section] = sections_of(read_runs(list(map(str, paths)), folder))
    return section


def test_runs_of_equal_settings_are_one_group_and_environments_apart(runs):
    cart, other = sections_of(runs)
    assert (cart.environment, other.environment) == ("gymnax:CartPole-v1", "gymnax:Acrobot-v1")
    assert differing(cart.runs) == ["learning_rate", "memory"]
    assert list(cart.groups) == [f"{m}-{rate}" for m in ("gru", "lstm") for rate in ("0.001", "0.0003")]
    assert [len(group) for group in cart.groups.values()] == [2, 2, 2, 2]
    assert list(other.groups) == ["other"]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("memory", ["memory=gru", "memory=lstm"]),
        ("network.memory", ["memory=gru", "memory=lstm"]),
        ("learning-rate", ["learning_rate=0.0003", "learning_rate=0.001"]),  # sorted as numbers
        ("seed", ["seed=0", "seed=1"]),
        ("name", ["gru-0.001", "gru-0.0003", "lstm-0.001", "lstm-0.0003"]),
        ("seed,memory", [f"seed={seed}, memory={memory}" for memory in ("gru", "lstm") for seed in (0, 1)]),
    ],
)
def test_groups_by_given_settings_are_labelled_by_their_values(runs, by, expected):
    assert list(sections_of(runs, by.split(","))[0].groups) == expected


@pytest.mark.parametrize(
    ("names", "settings", "expected"),
    [
        (("", ""), ({}, {"gamma": 0.9}), ["gamma=0.9", "gamma=0.99"]),
        (("same", "same"), ({}, {"gamma": 0.9}), ["gamma=0.9", "gamma=0.99"]),
        (("long", "short"), ({"memory": "gru"}, {"memory": "lstm"}), ["long", "short"]),
        (("m0", "m1"), ({}, {"seed": 1}), ["gymnax:CartPole-v1"]),
        (("", ""), ({}, ODD), ["r0", "r1"]),  # settings would be too long
        (("same", "same"), ({}, ODD), None),
    ],
)
def test_label_is_a_distinct_name_or_the_settings(tmp_path, names, settings, expected):
    paths = [
        made_run(tmp_path / str(i) / (name or f"r{i}"), name=name, **changed)
        for i, (name, changed) in enumerate(zip(names, settings, strict=True))
    ]
    found = list(grouped(paths, tmp_path).groups)
    assert found == expected if expected else len(set(found)) == 2


@pytest.mark.parametrize(
    ("setting", "separating"),
    [
        ({"eval_env": "gymnax:Acrobot-v1"}, ["eval_env"]),
        ({"eval_max_steps": 20}, ["eval_max_steps"]),
        ({"env_settings": {"size": 3}}, ["env_settings.size"]),
        ({"seed": 1, "eval_every": 1024, "eval_episodes": 3, "checkpoint_every": 2048, "num_workers": 2}, []),
    ],
)
def test_only_settings_that_change_the_result_separate_runs(tmp_path, setting, separating):
    section = grouped([made_run(tmp_path / "a"), made_run(tmp_path / "b", **setting)], tmp_path)
    assert differing(section.runs) == separating
    assert len(section.groups) == len(separating) + 1
