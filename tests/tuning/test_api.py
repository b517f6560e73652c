"""``proximo.tune`` searches as the command does."""

from unittest import mock

import pytest

import proximo
from proximo.errors import ConfigError
from proximo.settings import make_config
from proximo.storage.run_directory import locked
from proximo.tracking.reporter import Reporter
from proximo.training.interrupts import AbandonedError
from proximo.tuning.plan import open_journal, read_plan

from studies import ENV, SETTINGS, Scripted

SPACE = "learning_rate: {low: 1e-4, high: 1e-1, log: true}\ngamma: [0.9, 0.99]\n"
SEARCH = {"trials": 3, "seeds": 1, "together": 3, "evaluations": 2, "finalists": 0, "pruner": "none"}


def test_study_fixes_given_settings_and_its_preset_is_a_config(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("proximo.tuning.study.Batch", Scripted)
    (tmp_path / "space.yaml").write_text(SPACE)
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
