"""``proximo eval``: a run by any of its names, in words, as one JSON object, or a line for each episode."""

import json
import statistics

import numpy as np
import pytest

from commands import train_words
from proximo.cli import main
from proximo.evaluation.episodes import stratified_interval
from proximo.storage import checkpoint

KEYS = ["episodes", "return_mean", "return_std", "return_iqm", "ci95", "length_mean", "success_rate"]
PLAYED = ["env", "env_settings", "levels", "seed", "step"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run on a task that tells success, and is played best by no fixed action; and a group of two."""
    folder = tmp_path_factory.mktemp("runs")
    assert main(train_words(folder, "r", "proximo:PocMemory")) == 0
    assert main(train_words(folder, "two", "proximo:PocMemory", seeds=2, seeds_mode="serial")) == 0
    return folder


def evaluated(capsys, runs, *words):
    assert main(["eval", *words, "--runs-dir", str(runs), "--json"]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    return json.loads(out)


def test_json_contains_results_of_both_policies_and_the_evaluation_settings(runs, capsys):
    result = evaluated(capsys, runs, "r", "--episodes", "40")
    assert list(result) == [*KEYS, "policy", "greedy", "sampled", *PLAYED, "best_step", "run"]
    assert list(result["greedy"]) == list(result["sampled"]) == KEYS
    assert {name: result[name] for name in KEYS} == result["greedy"] != result["sampled"]
    assert result["ci95"][0] <= result["return_mean"] <= result["ci95"][1]
    played = {name: result[name] for name in (*PLAYED, "policy", "episodes")}
    usual = {"env": "proximo:PocMemory", "env_settings": {}, "levels": None, "seed": 0, "step": 640}
    assert played == {**usual, "policy": "greedy", "episodes": 40}
    assert evaluated(capsys, runs, "r", "--episodes", "40", "--seed", "3")["greedy"] != result["greedy"]
    for flag, policy, other in (("--greedy", "greedy", "sampled"), ("--stochastic", "sampled", "greedy")):
        alone = evaluated(capsys, runs, "r", "--episodes", "40", flag)
        assert (alone["policy"], other in alone) == (policy, False)
        assert {name: alone[name] for name in KEYS} == alone[policy] == result[policy]
    assert evaluated(capsys, runs, "r", "--episodes", "4", "--env", "toys:RandomEnds")["env"] == "toys:RandomEnds"


def test_what_differs_from_the_training_is_reported_and_played(runs, tmp_path, capsys):
    file = tmp_path / "episodes.jsonl"
    words = ["--episodes", "20", "--levels", "5:8", "--env-settings", "freeze_steps=2,show_steps=1"]
    result = evaluated(capsys, runs, "r", *words, "--episodes-file", str(file))
    assert (result["levels"], result["env_settings"]) == ("5:8", {"freeze_steps": 2, "show_steps": 1})
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert list(lines[0]) == ["run", *PLAYED, "policy", "index", "env_seed", "level", "return", "length", "success"]
    assert {(line["run"], line["step"], line["levels"]) for line in lines} == {(f"{runs}/proximo-PocMemory/r", 640, "5:8")}
    for policy in ("greedy", "sampled"):
        own = [line for line in lines if line["policy"] == policy]
        assert [line["index"] for line in own] == list(range(20))
        for name, mean in (("return", "return_mean"), ("length", "length_mean"), ("success", "success_rate")):
            assert statistics.fmean(line[name] for line in own) == pytest.approx(result[policy][mean])
    greedy, sampled = ([line["level"] for line in lines if line["policy"] == p] for p in ("greedy", "sampled"))
    assert greedy == sampled, "both play the same episodes"
    assert set(greedy) == {5, 6, 7}
    assert main(["eval", "r@last", *words, "--runs-dir", str(runs)]) == 0
    first, names, *rows = capsys.readouterr().out.splitlines()
    played = "proximo:PocMemory, freeze_steps=2, show_steps=1, levels 5:8, environment seed 0, 20 episodes each"
    assert first == f"{runs}/proximo-PocMemory/r at step 640: {played}"
    assert names.split("  ")[-1].strip() == "success"
    assert [row.split()[0] for row in rows] == ["greedy", "sampled"]
    assert rows[0].index("…") > names.index("95 % interval of the mean")


def test_group_reports_the_mean_over_seeds_and_two_intervals(runs, tmp_path, capsys):
    file = tmp_path / "episodes.jsonl"
    result = evaluated(capsys, runs, "two", "--episodes", "30", "--episodes-file", str(file))
    seeds = list(result["seeds"].values())
    assert [name.rpartition("/")[2] for name in result["seeds"]] == ["seed-0", "seed-1"]
    for policy in ("greedy", "sampled"):
        means = [seed[policy]["return_mean"] for seed in seeds]
        assert result[policy]["return_mean"] == pytest.approx(statistics.fmean(means))
        assert result[policy]["ci95"] == pytest.approx(sorted(means))  # of two seeds, the worse and the better one twice
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        strata = [[x["return"] for x in lines if (x["run"], x["policy"]) == (name, policy)] for name in result["seeds"]]
        assert result[policy]["ci95_episodes"] == pytest.approx(stratified_interval([np.array(s) for s in strata]))
    assert main(["eval", "two", "--runs-dir", str(runs), "--episodes", "30"]) == 0
    out = capsys.readouterr().out
    assert "two: means over 2 seeds\n" in out
    assert "95 % interval over seeds" in out


def test_another_best_checkpoint_is_suggested(runs, capsys, monkeypatch):
    hint = "Another checkpoint had the best evaluation in training (step 320):  proximo eval"
    for best, words, hinted in ((320, "r", True), (640, "r", False), (None, "r", False), (320, "r@last", False)):
        monkeypatch.setattr(checkpoint, "best_step", lambda run_dir, best=best: best)
        assert main(["eval", words, "--runs-dir", str(runs), "--episodes", "2", "--greedy"]) == 0
        assert (hint in capsys.readouterr().out) == hinted
    monkeypatch.setattr(checkpoint, "best_step", lambda run_dir: 320)
    assert evaluated(capsys, runs, "r", "--episodes", "2")["best_step"] == 320


def test_environment_with_other_spaces_is_refused(runs, capsys):
    assert main(["eval", "r", "--runs-dir", str(runs), "--env", "CartPole-v1"]) == 2
    sentence = "The observation space of CartPole-v1 is Box(4,) float32, but the policy is for Box"
    assert sentence in capsys.readouterr().err
