"""What `proximo train` and `proximo tune` print besides the progress: what is trained or searched, and the result."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from proximo.cli import reporters as module
from proximo.cli.reporters import TrainingReporter
from proximo.config import Config, override
from proximo.tracking.progress import StudyProgress
from proximo.training.seed_run import Result
from proximo.tuning.plan import Record, StudyPlan
from proximo.tuning.space import read_space

CONFIG = override(Config(), {"id": "toys:RandomEnds"})
RUN = Path("runs/e/r")


def result(**changes):
    values = {
        "run_dir": RUN, "steps": 3200, "seconds": 65.0, "compile_seconds": 4.21, "steps_per_second": 49.2,
        "evaluation_seconds": 9.2, "return_mean": 12.34, "evaluation": {"step": 3200, "episodes": 4, "return_mean": 12.34},
        "best": {"step": 3200, "return_mean": 12.34},
    }  # fmt: skip
    return Result(**{**values, **changes})


def printed(*results, config=CONFIG, seeds=1):
    """The lines of a training: what is trained, and its result."""
    stream = io.StringIO()
    reporter = TrainingReporter(Console(file=stream, soft_wrap=True))
    summary = {"batch": "4 environments × 8 steps = 32", "preprocessed": ""}
    reporter.started(config, [RUN / f"seed-{i}" for i in range(seeds)] if seeds > 1 else [RUN], summary)
    reporter.finished(list(results))
    return stream.getvalue().splitlines()


def test_training_begins_with_its_settings_and_ends_with_its_result_and_the_next_commands(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert printed(result()) == [
        "       batch  4 environments × 8 steps = 32",
        "         run  runs/e/r",
        "mean return 12.3 (4 greedy episodes) after 3,200 steps in 1:05 (49 steps/s), evaluated in 0:09, compiled in 0:04",
        "Next:  proximo watch runs/e/r",
        "       proximo eval runs/e/r --episodes 100",
        "       proximo report runs/e/r",
        "       proximo export runs/e/r",
        "       tensorboard --logdir runs/e/r   # after: pip install tensorboard",
    ]


def test_the_next_commands_play_in_the_environment_of_the_training_evaluations():
    settings = {"eval_env": "proximo:PocMemory", "eval_env_settings": {"view": 5}}
    lines, flags = printed(result(), config=override(CONFIG, settings)), "--env proximo:PocMemory --env-settings view=5"
    assert f"Next:  proximo watch runs/e/r {flags}" in lines
    assert f"       proximo eval runs/e/r {flags} --episodes 100" in lines


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"best": {"step": 65536, "return_mean": 43.0}}, "best: 43.0 at step 65,536 (runs/e/r@best)"),
        ({"evaluation": None}, "mean return 12.3 (training episodes) after 3,200 steps"),
        ({"evaluation": {"step": 1600, "episodes": 1}}, "mean return 12.3 (1 greedy episode at step 1,600) after 3,200 steps"),
        ({"return_mean": None, "best": {"step": 1, "return_mean": 1.0}}, "mean return – (4 greedy episodes)"),
        ({"resumed_at": 3000}, "mean return 12.3 (4 greedy episodes) after 3,200 steps, 200 of them now, in 1:05 ("),
    ],
)
def test_result_names_what_it_is_the_return_of(changes, words):
    lines = printed(result(**changes))
    assert [line for line in lines if line.startswith(words)]
    assert len([line for line in lines if "best: " in line]) == words.startswith("best")


def test_seeds_end_with_their_mean_and_an_interrupted_run_without_result():
    lines = printed(result(return_mean=10.0, seeds_together=2), result(return_mean=20.0, seeds_together=2), seeds=2)
    assert "2 seeds: mean return 15.0 ± 5.00 (standard deviation). All seeds together: 98 steps/s" in lines
    assert {"Next:  proximo watch runs/e/r", "       proximo export runs/e/r"} <= set(lines)
    *_, sentence = [x for x in printed(result(return_mean=480.0), result(return_mean=500.0), seeds=4) if x.startswith("2 of")]
    assert "of 4 seeds: mean return 490.0 ± 10.0 (standard deviation); the 2 that failed are not included, but" in sentence
    assert printed(result(interrupted=2))[-1] == "         run  runs/e/r"


def test_study_has_a_banner_a_line_per_trial_and_the_state_of_its_batch():
    base = override(Config(), {"id": "toys:RandomEnds", "total_steps": 3200, "seed": 100})
    plan = StudyPlan(base, read_space({"gamma": [0.9, 0.99], "num_steps": [64, 128]}, base, "s", True), trials=10)

    def trial(n, score, state="done", reason=""):
        return Record(n, {}, state, reason, {} if score is None else {"trial": [score]})

    stream = io.StringIO()
    reporter = StudyProgress(Console(file=stream, soft_wrap=True, highlight=False))
    base_trial, better = trial(0, 1.0), trial(1, 2.5)
    reporter.study_started(Path("tune/e/s"), plan, [base_trial], {"num_steps"})
    reporter.trials_started("trials 1–3 (num_steps 64)")
    assert (reporter.activity, reporter.figures) == ("trials 1–3: compiling…", "")
    reporter.trials_advanced(0.25)
    assert (reporter.activity, reporter.figures) == ("trials 1–3", "25%")
    reporter.trial_finished(better, better, 65.0)
    reporter.trial_finished(trial(2, 0.5, "pruned"), better, 50.0)
    reporter.trial_finished(trial(3, None, "failed", "NaN"), better, 50.0)
    reporter.stopping()
    assert stream.getvalue().splitlines() == [
        " environment  toys:RandomEnds",
        "      trials  10, 1 of them finished, of 3,200 steps each, seeds 100–101, 8 in one program",
        "    searched  gamma",
        "  by program  num_steps",
        "       study  tune/e/s",
        "trials 1–3 (num_steps 64)",
        "trial 1    2.50 · best 2.50 (trial 1) · 2 of 10 finished · 1:05 left",
        "trial 2    0.500 pruned · best 2.50 (trial 1) · 3 of 10 finished · 0:50 left",
        "trial 3    failed: NaN · best 2.50 (trial 1) · 4 of 10 finished · 0:50 left",
        "stopping: --resume restarts the trials in training (press Ctrl-C again to stop at once)",
    ]
