"""What a study leaves behind: a preset that gives back the trial's settings exactly, a table, and an object for JSON."""

import csv
import json

import pytest
import yaml

from proximo.cli import tune
from proximo.config import presets, to_mapping
from proximo.serialization import jsonable
from proximo.settings import make_config
from proximo.tuning.plan import Record, best_of, finalists
from proximo.tuning.result import TuneResult

from studies import config, plan

SPACE = "learning_rate: {low: 1e-6, high: 1e-2, log: true}\nhidden_sizes: [[8], [16, 16]]\ngamma: {low: 0.5, high: 0.999}\n"
WIN = {"learning_rate": "linear(0.001234, 0)", "hidden_sizes": "16,16", "gamma": 0.9876}
BASE = {"learning_rate": 0, "hidden_sizes": "8", "gamma": 0.99}


def record(number, state, settings, trial=None, **scores):
    scores = {kind: values for kind, values in {"trial": trial, **scores}.items() if values is not None}
    return Record(number, settings, state, scores=scores, evaluations=[1.0, 2.0])


def trials():
    return [
        record(0, "done", BASE, [2.0, 4.0], final=[3.0, 3.5]),
        record(1, "done", WIN, [5.0, 5.0], final=[4.5, 4.7]),
        record(2, "pruned", BASE, [1.0, 1.0]),
        Record(3, BASE, "failed", "NaN or infinity in the loss (seed 100)"),
        record(4, "done", BASE, [5.5, 5.5], final=[4.0, 4.2]),
    ]


def result(tmp_path, records=None, env=None, **search):
    base = config() if env is None else make_config(env, to_mapping(config())["ppo"], preset=False)
    return TuneResult(tmp_path, plan(tmp_path, SPACE, base, **search), trials() if records is None else records)


def test_winner_is_the_best_of_the_final_round():
    t = trials()
    assert best_of(t).number == 1
    for trial in (t[1], t[4]):
        del trial.scores["final"]
    assert best_of(t).number == 4, "a final round that only the base was in decides nothing"
    t[4].scores["final"] = []
    assert best_of(t).number == 1, "a trial that failed in the final round cannot win"
    assert [x.number for x in finalists(t, 1)] == [1], "the next best takes its place"
    assert best_of(t[2:]) is None


def test_base_enters_the_final_round_unless_clearly_worse():
    """Its seeds have 2 and 4; trial 4 has 4.1 in the final round, and trial 1 has 4.6."""
    t = trials()
    assert [x.number for x in finalists(t, 1)] == [4]
    t[0].scores["trial"] = [2.0, 4.2]
    assert [[x.number for x in finalists(t, count)] for count in (0, 1, 2)] == [[], [4, 0], [4, 1]]
    t[0].state = "failed"
    assert [x.number for x in finalists(t, 1)] == [4]


@pytest.mark.parametrize("env", ["toys:Forbidden", "gymnax:Acrobot-v1"])
def test_the_preset_gives_back_the_settings_of_the_trial_exactly(tmp_path, env):
    """Beside an environment's own preset too, of gymnax, whose settings the base may not have had."""
    assert (presets.load(env) is not None) == env.startswith("gymnax")
    r = result(tmp_path, env=env)
    r.write()
    read, expected = make_config(file=r.preset), r.plan.config(r.best)
    assert (read.env, read.ppo, read.network) == (expected.env, expected.ppo, expected.network)
    assert (read.ppo.learning_rate.text, read.network.hidden_sizes) == ("linear(0.001234, 0)", (16, 16))
    assert (read.run.seed, read.run.eval_episodes) == (0, r.plan.base.run.eval_episodes)


def test_study_leaves_a_table_a_preset_with_its_provenance_and_a_summary(tmp_path):
    made = result(tmp_path, seeds=2)
    made.write()
    rows = list(csv.DictReader((tmp_path / "trials.csv").open()))
    assert [row["state"] for row in rows] == ["done", "done", "pruned", "failed", "done"]
    columns = ("learning_rate", "seed_scores", "final_scores")
    assert [rows[1][name] for name in columns] == ["linear(0.001234, 0)", "5 5", "4.5 4.7"]
    assert (rows[3]["score"], rows[3]["reason"]) == ("", "NaN or infinity in the loss (seed 100)")
    found = yaml.safe_load((tmp_path / "preset.yaml").read_text())["provenance"]
    assert (found["trial"], found["trials"]) == (1, {"done": 3, "pruned": 1, "failed": 1})
    assert (found["seeds"], found["final_seeds"]) == ("100-101", "102-107")
    assert (found["score"], found["base_score"], found["final_score"]) == (5.0, 3.0, pytest.approx(4.6))
    assert found["versions"]["jax"]
    summary = json.loads(json.dumps(jsonable(made.summary()), allow_nan=False))
    best = summary["best"]
    assert (best["trial"], best["final_scores"], best["test_score"], best["test_scores"]) == (1, [4.5, 4.7], None, [])
    assert summary["command"] == f"proximo train --config {tmp_path}/preset.yaml"
    none = result(tmp_path, trials()[2:4])
    assert (none.best, none.preset, none.summary()["best"], none.summary()["command"]) == (None, None, None, None)


def test_what_is_printed_names_changed_settings_first_and_a_winner_that_failed_its_test(tmp_path, capsys):
    records = trials()
    records[1].settings = {**WIN, "hidden_sizes": "8"}
    records[1].scores["test"] = []
    tune.print_result(result(tmp_path, records))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[-5:-2] == ["learning_rate linear(0.001234, 0) (base 0)", "gamma 0.9876 (base 0.99)", "hidden_sizes 8"]
    assert any(line.startswith("The winner failed on its test seeds") for line in lines)
