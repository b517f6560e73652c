"""Runs are read with their settings, sessions and ends; which are compared, and how their groups are called."""

import numpy as np
import pytest

from made_runs import BATCH, SPEED, made_group, made_rows, made_run, write_rows
from proximo.report.runs import differing, read_run, read_runs, sections_of
from proximo.storage.run_directory import locked


def test_metrics_have_their_steps_and_seconds_and_null_is_no_value(tmp_path):
    run = read_run(made_run(tmp_path / "r", updates=20, seed=3))
    assert (run.status, run.step, run.settings["seed"], run.label) == ("finished", 20 * BATCH, 3, "r")
    measured = {"train/approx_kl": range(1, 21), "rollout/return_mean": range(2, 21), "eval/return_mean": [5, 10, 15, 20]}
    for name, updates in measured.items():
        series = run.series(name)
        np.testing.assert_array_equal(series.step, BATCH * np.array(updates))
        np.testing.assert_allclose(series.seconds, series.step / SPEED)
    assert len(run.series("never/measured").value) == 0


def timed(*rows):
    return [{"step": step, "time/seconds": seconds, "time/steps_per_second": speed} for step, seconds, speed in rows]


@pytest.mark.parametrize(
    ("rows", "seconds"),
    [
        # The second session's clock begins at zero; its first row has run for longer than the whole first session.
        (timed((1, 1.0, 1.0), (2, 2.0, 1.0), (3, 9.0, 1 / 9), (4, 18.0, 1 / 9)), [1, 2, 11, 20]),
        # A clock that goes back begins a session, also if the speed is too high for its row.
        (timed((2, 36_000.0, 2 / 36_000), (3, 3.0, 1.0), (4, 6.0, 1.0)), [36_000, 36_003, 36_006]),
        # A failed seed of a vmapped program: the other seeds have gone on, and their steps are in its speed.
        (timed((1, 1.0, 1.0), (2, 2.0, 1.0), (3, 5.0, 1.0)), [1, 2, 5]),
        ([{"step": 1, "train/loss": 1.0}, *timed((2, 2.0, 1.0)), {"step": 2, "eval/return_mean": 1.0}], [0, 2, 2]),
    ],
)
def test_seconds_are_summed_over_sessions(tmp_path, rows, seconds):
    run_dir = made_run(tmp_path / "r")
    write_rows(run_dir, rows)
    np.testing.assert_allclose(read_run(run_dir).seconds, seconds)
    write_rows(run_dir, timed((1050, 2.0, 25.0), (1100, 4.0, 25.0)))
    assert (read_run(run_dir).first_step, read_run(run_dir).step) == (1000, 1100), "the run was pulled at step 1000"


COMPLETE = made_rows(20, 100, 0)


@pytest.mark.parametrize(
    ("rows", "files", "settings", "expected"),
    [
        (COMPLETE, {}, {}, ("finished", "")),
        ([*COMPLETE[:-1], {**COMPLETE[-1], "eval/return_mean": None}], {}, {}, ("finished", "")),
        (made_rows(12, 100, 0), {}, {}, ("interrupted", "")),
        (made_rows(12, 100, 0), {".lock.json": "{}"}, {}, ("interrupted", "")),
        (COMPLETE[:-1], {}, {}, ("interrupted", "")),
        (COMPLETE[:-1], {}, {"eval_episodes": 0}, ("finished", "")),
        (made_rows(12, 100, 0), {"stopped.txt": "By a callback.\n"}, {}, ("stopped", "By a callback.")),
        (COMPLETE, {"failure.txt": "NaN in the loss.\n"}, {}, ("failed", "NaN in the loss.")),
        ([], {}, {}, ("not started", "")),
    ],
)
def test_status_is_how_a_run_ended(tmp_path, rows, files, settings, expected):
    run_dir = made_run(tmp_path / "r", updates=20, **settings)
    write_rows(run_dir, rows)
    for name, text in files.items():
        (run_dir / name).write_text(text)
    run = read_run(run_dir)
    assert (run.status, run.why) == expected
    if expected[0] == "interrupted":
        with locked(run_dir):
            assert read_run(run_dir).status == "running"


def test_a_group_is_read_by_seeds_and_each_run_once(tmp_path):
    group = made_group(tmp_path / "runs" / "e" / "g", seeds=3)
    (group / "seed-2" / "metrics.jsonl").unlink()
    runs = read_runs(["g", str(group / "seed-1"), "e/g"], tmp_path / "runs")
    found = [(run.label, run.settings["name"], run.settings["seed"]) for run in runs]
    assert found == [(f"g/seed-{i}", "g", i) for i in range(3)]
    assert [run.status for run in runs] == ["finished", "finished", "not started"]
    assert [run.label for run in read_runs([str(group / "seed-1")], tmp_path)] == ["g/seed-1"]


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
    runs = enumerate(zip(names, settings, strict=True))
    paths = [made_run(tmp_path / str(i) / (name or f"r{i}"), name=name, **changed) for i, (name, changed) in runs]
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
