"""``proximo eval``: a run by any of its names, in words or as one JSON object."""

import json

import pytest

from commands import train_words
from proximo.cli import main

KEYS = ["episodes", "mean_return", "std_return", "iqm_return", "ci95", "mean_length", "success_rate"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run on a task that tells success, and is played best by no fixed action."""
    folder = tmp_path_factory.mktemp("runs")
    assert main(train_words(folder, "r", "proximo:PocMemory")) == 0
    return folder


def evaluated(capsys, runs, *words):
    assert main(["eval", *words, "--runs-dir", str(runs), "--json"]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    return json.loads(out)


def test_json_is_one_object_of_seven_figures(runs, capsys):
    result = evaluated(capsys, runs, "last", "--episodes", "40")
    assert list(result) == KEYS
    assert result["episodes"] == 40
    assert 0 <= result["success_rate"] <= 1
    assert result["ci95"][0] <= result["mean_return"] <= result["ci95"][1]


def test_the_sampled_policy_is_another_than_the_greedy_one(runs, capsys):
    greedy, sampled = (evaluated(capsys, runs, "r", "--episodes", "40", *words) for words in ([], ["--stochastic"]))
    assert greedy != sampled


def test_a_seed_repeats_and_another_one_draws_other_episodes(runs, capsys):
    first, same, other = (evaluated(capsys, runs, "r", "--episodes", "40", "--seed", seed) for seed in "003")
    assert first == same != other


def test_a_sentence_names_the_checkpoint_and_the_figures(runs, capsys):
    assert main(["eval", "r@best", "--runs-dir", str(runs), "--episodes", "5"]) == 0
    out = capsys.readouterr().out
    assert f"{runs}/proximo-PocMemory/r at step " in out
    assert "over 5 greedy episodes (95 % interval of the mean " in out
    assert ", success " in out


def test_no_episodes_are_a_mistake(runs, capsys):
    assert main(["eval", "r", "--runs-dir", str(runs), "--episodes", "0"]) == 2
    assert capsys.readouterr().err == "proximo: episodes = 0: expected 1 … 1000000.\n"
