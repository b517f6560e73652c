"""What a study leaves behind: a preset that gives back the trial's settings exactly, a table, pictures."""

import csv
import json

import numpy as np
import optuna
import pytest
import yaml
from matplotlib import pyplot
from PIL import Image

from proximo.cli import tuning_reporters
from proximo.config import override, presets, to_mapping
from proximo.serialization import jsonable
from proximo.settings import make_config
from proximo.tuning import study as study_module
from proximo.tuning.api import TuneResult
from proximo.tuning.pictures import draw_pictures
from proximo.tuning.progress import Reporter
from proximo.tuning.record import Record, best_of, finalists
from proximo.tuning.result import changes, summary, write_preset, write_tables
from proximo.tuning.study import Study
from proximo.tuning.trial import TrialResult

from studies import Watching, config, plan

SPACE = "learning_rate: {low: 1e-6, high: 1e-2, log: true, schedule: [constant, linear]}\nhidden_sizes: [[8], [16, 16]]\ngamma: {low: 0.5, high: 0.999, one_minus: true}\n"
WIN = {"learning_rate": "linear(0.001234, 0)", "hidden_sizes": "16,16", "gamma": 0.9876}
BASE = {"learning_rate": 0, "hidden_sizes": "8", "gamma": 0.99}


def trials():
    return [
        Record(0, "done", BASE, 3.0, [2.0, 4.0], {1: 1.0, 2: 3.0}, 1.0, 1.0, final=[3.0, 3.5]),
        Record(1, "done", WIN, 5.0, [5.0, 5.0], {1: 2.0, 2: 5.0}, 1.0, 1.0, final=[4.5, 4.7]),
        Record(2, "pruned", BASE, 1.0, [1.0, 1.0], {1: 1.0}, 0.5, 1.0),
        Record(3, "failed", BASE, None, reason="NaN or infinity in the loss (seed 100)"),
        Record(4, "done", BASE, 5.5, [5.5, 5.5], {1: 2.0, 2: 5.5}, 1.0, 1.0, final=[4.0, 4.2]),
    ]


def test_winner_is_the_best_of_the_final_round():
    t = trials()
    assert best_of(t).number == 1
    without = [Record(**{**vars(x), "final": None}) for x in t]
    assert best_of(without).number == 4
    only_base = [t[0], *without[1:]]
    assert best_of(only_base).number == 4, "a final round that only the base was in decides nothing"
    assert best_of([t[2], t[3]]) is None
    assert finalists(t, 0) == []


def test_base_enters_the_final_round_unless_clearly_worse():
    """Its seeds have 2 and 4; trial 4 had 5.5, and has 4.1 in the final round."""
    t = trials()
    assert [x.number for x in finalists(t, 1)] == [4]
    t[0] = Record(0, "done", BASE, 3.0, [2.0, 4.2])
    assert [x.number for x in finalists(t, 1)] == [4, 0]
    assert [x.number for x in finalists(t, 2)] == [4, 1], "trial 1 has 4.6 there"
    assert [x.number for x in finalists([Record(0, "failed", BASE, None), *t[1:]], 1)] == [4]


def test_trial_that_failed_in_the_final_round_cannot_win():
    t = trials()
    t[4] = Record(4, "done", BASE, 5.5, [5.5, 5.5], final=[])
    t[1] = Record(1, "done", WIN, 5.0, [5.0, 5.0])
    t[0] = Record(0, "done", BASE, 3.0, [2.0, 3.0])
    assert best_of(t).number == 1
    assert [x.number for x in finalists(t, 1)] == [1], "the next best takes its place"
    assert best_of([t[4]]) is None


class Noisy:
    """A trainer for equally good trials: a score is random, given the setting and the seed. It records all seeds."""

    width, full_seconds, failing = 1, 0.0, None

    def __init__(self, configs, seeds, width, watch):
        self.configs, self.seeds = configs, seeds
        Noisy.trained.append((configs[0].ppo.gamma, tuple(seeds)))

    @staticmethod
    def score(gamma, seed):
        return float(np.random.default_rng([round(gamma * 10**6), seed]).normal())

    def train(self, evaluations, select):
        returns = [tuple(self.score(config.ppo.gamma, seed) for seed in self.seeds) for config in self.configs]
        failed = self.failing in self.seeds
        select(evaluations, {i: TrialResult((), "NaN") if failed else TrialResult(x, final=True) for i, x in enumerate(returns)})


def searched(folder, plan):
    study = Study(folder, plan, Watching(), Reporter())
    study.search()
    study.final_round()
    return study


@pytest.fixture
def noisy(tmp_path, monkeypatch):
    """Twelve trials one by one, two seeds each, as on Gymnasium."""
    monkeypatch.setattr(study_module, "Batch", Noisy)
    monkeypatch.setattr(Noisy, "trained", [], raising=False)
    space = "gamma: {low: 0.5, high: 0.99, one_minus: true}\n"
    (tmp_path / "s").mkdir()
    return plan(tmp_path, space, trials=12, together=1, seeds=2, finalists=4)


def test_winner_is_scored_on_seeds_not_used_for_selection(noisy, tmp_path):
    p = noisy
    seeds = [*p.trial_seeds, *p.final_seeds, *p.test_seeds]
    assert len(set(seeds)) == len(seeds) == 6
    found = searched(tmp_path / "s", p).trials
    best = best_of(found)
    assert best.score > 0.5, "the best of twelve by chance"
    assert best.test == [Noisy.score(best.settings["gamma"], seed) for seed in p.test_seeds]
    assert [t.number for t in found if t.test] == [best.number]
    assert Noisy.trained[-1] == (best.settings["gamma"], tuple(p.test_seeds))
    assert summary(tmp_path, p, found)["best"]["test_score"] == pytest.approx(np.mean(best.test))
    count = len(Noisy.trained)
    assert best_of(searched(tmp_path / "s", p).trials) == best
    assert len(Noisy.trained) == count, "nothing is trained twice"


def test_winner_that_fails_on_its_test_seeds_is_reported(noisy, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Noisy, "failing", noisy.test_seeds[0])
    found = searched(tmp_path / "s", noisy).trials
    best = best_of(found)
    assert best.test == []
    write_tables(tmp_path, noisy, found)
    tuning_reporters.print_result(TuneResult(tmp_path, noisy, found, best, tmp_path / "preset.yaml"))
    assert "The winner failed on its test seeds" in capsys.readouterr().out
    assert yaml.safe_load((tmp_path / "preset.yaml").read_text())["provenance"]["test_score"] is None


@pytest.mark.parametrize("env", ["toys:Forbidden", "gymnax:Acrobot-v1"])
def test_the_preset_gives_back_the_settings_of_the_trial_exactly(tmp_path, env):
    """Beside an environment's own preset too, of gymnax, whose settings the base may not have had."""
    assert (presets.load(env) is not None) == env.startswith("gymnax")
    p = plan(tmp_path, SPACE, make_config(env, to_mapping(config())["ppo"], preset=False))
    path = tmp_path / "preset.yaml"
    write_preset(path, tmp_path, p, trials(), trials()[1])
    read = make_config(file=path)
    expected = p.config(1, trials()[1].settings)
    assert (read.env, read.ppo, read.network) == (expected.env, expected.ppo, expected.network)
    assert read.ppo.learning_rate.text == "linear(0.001234, 0)"
    assert read.network.hidden_sizes == (16, 16)
    assert (read.run.seed, read.run.eval_episodes) == (0, p.base.run.eval_episodes)
    assert read != override(expected, {"gamma": 0.9, "seed": 0})


def test_preset_contains_its_provenance(tmp_path):
    p = plan(tmp_path, SPACE, seeds=2)
    write_tables(tmp_path, p, trials())
    found = yaml.safe_load((tmp_path / "preset.yaml").read_text())["provenance"]
    assert found["trial"] == 1
    assert found["trials"] == {"done": 3, "pruned": 1, "failed": 1}
    assert (found["seeds"], found["final_seeds"]) == ("100-101", "102-107")
    assert (found["score"], found["base_score"], found["final_score"]) == (5.0, 3.0, pytest.approx(4.6))
    assert found["versions"]["jax"]
    assert len(found["date"]) == 10


def test_the_table_has_a_row_for_every_trial(tmp_path):
    write_tables(tmp_path, plan(tmp_path, SPACE), trials())
    rows = list(csv.DictReader((tmp_path / "trials.csv").open()))
    assert [row["state"] for row in rows] == ["done", "done", "pruned", "failed", "done"]
    assert rows[1]["learning_rate"] == "linear(0.001234, 0)"
    assert rows[1]["seed_scores"] == "5 5"
    assert (rows[3]["score"], rows[3]["reason"]) == ("", "NaN or infinity in the loss (seed 100)")


def test_study_without_a_finished_trial_has_no_preset(tmp_path):
    write_tables(tmp_path, plan(tmp_path, SPACE), trials()[2:4])
    assert not (tmp_path / "preset.yaml").exists()
    assert summary(tmp_path, plan(tmp_path, SPACE), trials()[2:4])["best"] is None


def test_the_summary_is_strict_json(tmp_path):
    found = json.loads(json.dumps(jsonable(summary(tmp_path, plan(tmp_path, SPACE), trials())), allow_nan=False))
    assert (found["best"]["trial"], found["base"]["score"]) == (1, 3.0)
    assert found["command"] == f"proximo train --config {tmp_path}/preset.yaml"


def test_settings_changed_from_the_base_come_first(tmp_path):
    p = plan(tmp_path, SPACE)
    assert {name: (before, after) for name, before, after in changes(p, trials()[1])} == {
        "learning_rate": ("0", "linear(0.001234, 0)"), "hidden_sizes": ("8", "16,16"), "gamma": ("0.99", "0.9876"),
    }  # fmt: skip
    same = Record(5, "done", {**BASE, "gamma": 0.5}, 1.0)
    assert changes(p, same)[0] == ("gamma", "0.99", "0.5")


def study_of(count, score):
    study = optuna.create_study(direction="maximize")
    distributions = {"a": optuna.distributions.FloatDistribution(0, 1), "b": optuna.distributions.FloatDistribution(0, 1)}
    rng = np.random.default_rng(0)
    for _ in range(count):
        x = {name: float(rng.random()) for name in distributions}
        study.add_trial(optuna.trial.create_trial(params=x, distributions=distributions, value=score(x)))
    return study


@pytest.mark.parametrize(
    ("count", "score", "files"),
    [(2, lambda x: x["a"], 1), (20, lambda x: 1.0, 1), (19, lambda x: x["a"], 1), (20, lambda x: x["a"], 2)],
)
def test_pictures_are_drawn_of_enough_trials_and_leave_pyplot_unchanged(tmp_path, count, score, files):
    before = dict(pyplot.rcParams)
    draw_pictures(tmp_path, study_of(count, score), "title")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history.png", "importance.png"][:files]
    assert all(np.asarray(Image.open(path)).std() > 1 for path in tmp_path.iterdir())
    assert (dict(pyplot.rcParams), pyplot.get_fignums()) == (before, [])
