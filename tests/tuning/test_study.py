"""A study: the base first, programs shared, nothing lost or repeated by an interruption; and ``proximo.tune``."""

import csv
import functools
import json
import math
import time
from dataclasses import replace
from unittest import mock

import pytest
import yaml

import proximo
from proximo.cli import tune
from proximo.config import presets, to_mapping
from proximo.errors import ConfigError
from proximo.serialization import jsonable
from proximo.settings import make_config
from proximo.storage.run_directory import locked
from proximo.tracking.reporter import Reporter
from proximo.training.interrupts import AbandonedError
from proximo.tuning import study as module
from proximo.tuning.plan import Record, best_of, finalists, open_journal, read_plan
from proximo.tuning.space import shaping
from proximo.tuning.study import TuneResult

from studies import ENV, SETTINGS, Recording, Scripted, config, plan, searched

TRACED = "learning_rate: {low: 1e-3, high: 1e-1, log: true}\ngamma: {low: 0.5, high: 0.99}\n"
INSIDE = config(learning_rate=1e-3)
"""A base in this space; that of ``config()`` learns nothing."""


@pytest.fixture
def scripted(monkeypatch):
    """``scripted(**attributes)`` trains without training; it returns the list of all batches."""

    def use(**attributes):
        batches = []

        class Batch(Scripted):
            def __init__(self, configs, seeds, width, interrupts):
                super().__init__(configs, seeds, width, interrupts)
                batches.append(self)

        for name, value in attributes.items():
            setattr(Batch, name, value)
        monkeypatch.setattr(module, "Batch", Batch)
        return batches

    return use


def rising(batch, place, sign=1.0):
    return [sign * place] * len(batch.seeds)


def told(study):
    """What is known of every trial, without its seconds."""
    return [(t.number, t.state, t.settings, t.scores, t.evaluations) for t in study.trials]


def test_base_is_trial_0_and_batches_share_static_settings(tmp_path, scripted):
    batches = scripted()
    p = plan(tmp_path, TRACED + "num_epochs: [1, 2]\n", INSIDE, trials=7)
    study = searched(tmp_path / "s", p)
    assert study.trials[0].settings == {"learning_rate": 1e-3, "gamma": 0.99, "num_epochs": 2}
    assert batches[0].configs[0] == p.base
    assert study.shaping == {"num_epochs"}
    assert [(len(b.configs), b.width) for b in batches] == [(3, 3), (3, 3), (1, 3)]
    for batch in batches:
        assert len({c.ppo.num_epochs for c in batch.configs}) == 1
        assert len({c.ppo.gamma for c in batch.configs}) == len(batch.configs), "and nothing else"
    assert [(t.number, t.state) for t in study.trials] == [(n, "done") for n in range(7)]


def test_base_outside_the_space_trains_alone_as_trial_0(tmp_path, scripted):
    batches = scripted()
    trials = searched(tmp_path / "s", plan(tmp_path, "learning_rate: {low: 1e-3, high: 1e-1}\n", trials=4)).trials
    assert [(len(b.configs), b.width) for b in batches] == [(1, 1), (3, 3)]
    assert (trials[0].settings, trials[0].state) == ({"learning_rate": 0}, "done")
    assert all(1e-3 <= t.settings["learning_rate"] <= 1e-1 for t in trials[1:])


def test_settings_that_shape_the_program_are_found(tmp_path):
    space = TRACED + "target_kl: [0, 0.01]\nclip_value_eps: {low: 0.1, high: 0.3}\nent_coef: [0.001, 'linear(0.1, 0)']\n"
    assert shaping(plan(tmp_path, space + "num_steps: [16, 32]\n").space) == {"target_kl", "num_steps"}


def test_resumed_study_equals_the_uninterrupted_one(tmp_path, scripted, monkeypatch):
    scripted()
    p = plan(tmp_path, TRACED + "num_epochs: [1, 2]\n", INSIDE, trials=14, finalists=2, pruner="halving", evaluations=4)
    whole = told(searched(tmp_path / "whole", p))
    assert {state for _, state, *_ in whole} == {"done", "pruned"}
    finish, finished = module.Study._finish, []

    def killed(self, *arguments):
        finish(self, *arguments)
        finished.append(arguments)
        if len(finished) in (4, 10):
            raise KeyboardInterrupt

    monkeypatch.setattr(module.Study, "_finish", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            searched(tmp_path / "s", p)
        journal = tmp_path / "s" / "journal.log"
        journal.write_bytes(journal.read_bytes() + b'{"op_code": 4, "wor')  # the write was torn too
        (tmp_path / "s" / "journal.log.lock").symlink_to("journal.log")
    assert len(finished) == 10
    assert told(searched(tmp_path / "s", p)) == whole
    assert told(searched(tmp_path / "s", p)) == whole, "nothing is trained twice"
    more = told(searched(tmp_path / "s", replace(p, trials=17)))
    assert [t[:3] for t in more[:14]] == [t[:3] for t in whole]
    assert len(more) == 17


@pytest.mark.slow
def test_interrupted_training_resumes_to_the_same_result(tmp_path):
    p = plan(tmp_path, TRACED + "num_epochs: [1, 2]\n", trials=7, finalists=2)
    whole = searched(tmp_path / "whole", p)
    assert best_of(whole.trials).score > whole.trials[0].score + 1, "the search finds settings that learn"
    searched(tmp_path / "s", p, stop_at=7)
    assert told(searched(tmp_path / "s", p)) == told(whole)


@pytest.mark.parametrize(
    "error", [RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), MemoryError(), ConfigError("too many epochs")]
)
def test_batch_that_fails_fails_alone(tmp_path, scripted, error):
    def returns(batch, place):
        if not failed:
            failed.append(place)
            raise error
        return [1.0 + place]

    failed, reason = [], "too many epochs" if isinstance(error, ConfigError) else "there was not enough memory"
    scripted(returns=returns)
    trials = searched(tmp_path / "s", plan(tmp_path, TRACED, INSIDE)).trials
    assert [(t.state, t.reason, t.score) for t in trials[:3]] == [("failed", reason, None)] * 3
    assert [(t.state, t.score) for t in trials[3:]] == [("done", 1.0), ("done", 2.0), ("done", 3.0)]


@pytest.mark.parametrize(("pruner", "pruned"), [("median", True), ("halving", True), ("none", False)])
def test_bad_trials_are_pruned_but_never_the_base(tmp_path, scripted, pruner, pruned):
    scripted(returns=rising)
    p = plan(tmp_path, TRACED, INSIDE, trials=30, together=10, pruner=pruner, evaluations=4)
    trials = searched(tmp_path / "s", p).trials
    assert ("pruned" in {t.state for t in trials}) == pruned
    assert trials[0].state == trials[29].state == "done"
    assert all(len(t.evaluations) < 4 and t.score is not None for t in trials if t.state == "pruned")


def test_winner_is_scored_on_seeds_that_nothing_was_selected_by(tmp_path, scripted):
    batches = scripted()
    p = plan(tmp_path, TRACED, INSIDE, trials=12, together=1, seeds=2, finalists=4)
    trials = searched(tmp_path / "s", p).trials
    best = best_of(trials)
    assert best.score > 0.5, "the best of twelve by chance"
    assert best.mean("final") == max(t.mean("final") for t in trials if "final" in t.scores)
    assert {t.number for t in trials if "final" in t.scores} == {t.number for t in finalists(trials, 4)}
    assert [t.number for t in trials if "test" in t.scores] == [best.number]
    assert (batches[-1].seeds, best.scores["test"]) == ([*p.seeds_of("test")], batches[-1].returns(0))
    count = len(batches)
    assert best_of(searched(tmp_path / "s", p).trials) == best
    assert len(batches) == count, "nothing is trained twice"


def test_trial_that_fails_in_the_final_round_is_replaced(tmp_path, scripted):
    def failing(batch, place):
        number = gammas.setdefault(batch.configs[place].ppo.gamma, float(len(gammas)))
        return "NaN" if number == 2 and batch.seeds != [100] else [number] * len(batch.seeds)

    gammas = {}
    scripted(returns=failing)
    trials = searched(tmp_path / "s", plan(tmp_path, TRACED, INSIDE, trials=3, finalists=1)).trials
    assert [t.scores.get("final") for t in trials] == [None, [1.0] * 3, []]
    assert best_of(trials).number == 1


def test_search_ends_in_time_for_the_final_round(tmp_path, scripted):
    """A final round of the base and two others, and the test of the winner, take 40 seconds."""
    batches = scripted(returns=functools.partialmethod(rising, sign=-1.0), full_seconds=10.0)
    p = plan(tmp_path, TRACED, INSIDE, trials=30, finalists=2)
    trials = searched(tmp_path / "s", p, deadline=time.monotonic() + 40).trials
    assert [t.state for t in trials] == ["done"] * 3, "no batch begins after the search"
    assert [len(b.seeds) for b in batches] == [1, 3, 3, 3, 3]
    assert [t.number for t in trials if "final" in t.scores] == [0, 1, 2]
    late = searched(tmp_path / "t", p, reporter=Recording(), deadline=time.monotonic() - 1).trials
    assert [t.state for t in late] == ["done"] * 3, "the base is always trained to its end"
    assert not any("final" in t.scores for t in late), "what cannot end in time is not begun"


def test_batch_that_would_miss_the_deadline_is_stopped_early(tmp_path, scripted):
    def reporting(batch, evaluations):
        for share in (0.01, 0.05, 0.5):
            shares.append(share)
            yield share, 1, {}
        yield 1.0, 1, {place: [0.0] for place in batch.live}

    shares = []
    scripted(train=reporting, full_seconds=100.0)
    trials = searched(tmp_path / "s", plan(tmp_path, TRACED, INSIDE), deadline=time.monotonic() + 60).trials
    assert shares == [0.01, 0.05, 0.5, 0.01, 0.05], "the base's batch ends, and the next one is ended when its speed is known"
    assert [(t.state, t.reason, t.score) for t in trials[3:]] == [("pruned", "time was up", None)] * 3


def test_skipped_final_round_is_reported(tmp_path, scripted):
    def warnings(name, seconds, **search):
        p, reporter = plan(tmp_path, TRACED, INSIDE, **search), Recording()
        searched(tmp_path / name, p, reporter=reporter, deadline=time.monotonic() + seconds)
        return reporter.warnings

    scripted(returns=rising, full_seconds=10.0)
    assert warnings("whole", math.inf, finalists=2) == warnings("unasked", math.inf, trials=1) == []
    [sentence] = warnings("base", math.inf, trials=1, finalists=2)
    assert sentence == "there was no final round: no trial besides the base was trained to its end."
    [sentence] = warnings("s", 5, trials=3, finalists=1)
    late = "time ran out before the final round or the test of trial 2."
    assert sentence == f"{late} Go on with: proximo tune --resume {tmp_path}/s"


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


SEARCH = {"trials": 3, "seeds": 1, "together": 3, "evaluations": 2, "finalists": 0, "pruner": "none"}


def test_study_fixes_given_settings_and_its_preset_is_a_config(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("proximo.tuning.study.Batch", Scripted)
    (tmp_path / "space.yaml").write_text("learning_rate: {low: 1e-4, high: 1e-1, log: true}\ngamma: [0.9, 0.99]\n")
    given = {name: x for name, x in SETTINGS.items() if name != "learning_rate"} | SEARCH
    where = {"space": tmp_path / "space.yaml", "tune_dir": tmp_path, "name": "s"}
    result = proximo.tune(ENV, preset=False, gamma=0.9, progress=True, **where, **given)
    lines = [line for line in capsys.readouterr().out.splitlines() if " finished · " in line]
    assert [line.rpartition(" · ")[0].rpartition(" · ")[2] for line in lines] == [f"{n} of 3 finished" for n in (1, 2, 3)], lines
    assert [trial.number for trial in result.trials] == [0, 1, 2]
    assert list(result.plan.space) == ["learning_rate"], "gamma was given"
    assert repr(result).endswith(f"3 trials, best score {result.best.score:.4g} by {result.best.name})")
    config = make_config(file=result.preset)
    assert (config.env.id, config.ppo.gamma, config.ppo.total_steps) == (ENV, 0.9, SETTINGS["total_steps"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_step": 3}, r"Unknown setting 'num_step' \(did you mean 'num_steps'\?\)"),
        ({"eval_every": 100}, "eval_every: no effect on a search"),
        ({"name": "../other"}, r"name = '\.\./other': expected a plain name"),
        ({"seconds": 0}, "seconds = 0: expected a number above 0"),
        ({"progress": True, "reporter": Reporter()}, "progress = True, but reporter is given"),
    ],
)
def test_wrong_argument_raises_before_anything_is_trained(tmp_path, arguments, message):
    with pytest.raises(ConfigError, match=message):
        proximo.tune(ENV, preset=False, tune_dir=tmp_path / "tune", **{**SETTINGS, **arguments})
    assert not (tmp_path / "tune").exists()


def test_study_has_its_plan_as_soon_as_it_has_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr("proximo.tuning.study.run_study", lambda folder, plan, *_: (folder, plan))
    folder, plan = proximo.tune(ENV, preset=False, tune_dir=tmp_path, name="s", **SETTINGS)
    assert read_plan(open_journal(folder), folder) == plan


def test_ctrl_c_during_a_call_that_does_not_return_keeps_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr("proximo.tuning.study.Study.search", mock.Mock(side_effect=AbandonedError))
    with pytest.raises(KeyboardInterrupt):
        proximo.tune(ENV, preset=False, tune_dir=tmp_path, name="s", **SETTINGS)
    folder = tmp_path / ENV.replace(":", "-") / "s"
    assert (folder / "trials.csv").is_file()
    with locked(folder):
        pass
