"""The training loop: what it writes, saves and evaluates; several seeds; faults that end it."""

import contextlib
import itertools
import json
import math
import shutil
from unittest import mock

import numpy as np
import pytest

import proximo
from commands import BATCH, SMALL, copied, final_state, last_best, rows, train_words, trained
from proximo.cli import main
from proximo.collect import program_cache
from proximo.errors import ConfigError, EnvError, EnvironmentFault, TrainingError
from proximo.storage import checkpoint, run_directory
from proximo.storage.named_folders import seed_run_dirs
from proximo.tracking.reporter import Reporter
from proximo.tracking.run_trackers import read_rows
from proximo.training.backends import JaxBackend

from helpers import compilations

TOTAL = SMALL["total_steps"]
TRAIN_METRICS = (
    "policy_loss value_loss entropy approx_kl clip_fraction explained_variance grad_norm learning_rate ratio_min ratio_max"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with an evaluation at every second update, and TensorBoard events."""
    return trained(tmp_path_factory.mktemp("run"), "r", tensorboard="true", keep_checkpoints=2)


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Three seeds, vmapped and one after the other."""
    folder = tmp_path_factory.mktemp("groups")
    settings = {"seeds": 3, "seed": 5, "checkpoint_every": 4 * BATCH, "keep_checkpoints": 9}
    return {mode: trained(folder, mode, **settings, seeds_mode=mode) for mode in ("vmap", "serial")}


def train(folder, name, **settings):
    """Train from Python; ``trained`` trains from the command line."""
    return proximo.train(
        config=proximo.make_config("toys:RandomEnds", {**SMALL, **settings, "runs_dir": str(folder), "name": name}, preset=False)
    )


def test_rows_have_all_metrics(run):
    table = read_rows(run / "metrics.jsonl")
    training = [row for row in table if "train/policy_loss" in row]
    assert [row["step"] for row in training] == list(range(2 * BATCH, TOTAL + 1, 2 * BATCH))
    for row in training:
        assert {f"train/{name}" for name in TRAIN_METRICS.split()} <= set(row)
        assert {"rollout/episodes", "rollout/return_mean", "rollout/length_mean"} <= set(row)
        assert "rollout/success_rate" not in row, "this environment reports no success"
        assert {"time/steps_per_second", "time/seconds"} <= set(row)
        assert all(math.isfinite(row[f"train/{name}"]) for name in TRAIN_METRICS.split())
        assert row["train/ratio_min"] <= 1 <= row["train/ratio_max"]
        assert not [name for name in row if name.startswith("bad/")]
    evaluations = [row for row in table if "eval/return_mean" in row]
    assert [row["step"] for row in evaluations] == [row["step"] for row in training]
    assert {"eval/return_std", "eval/return_iqm", "eval/length_mean"} <= set(evaluations[0])


def test_rows_have_the_seconds_and_the_speed_of_the_same_updates(tmp_path, monkeypatch):
    monkeypatch.setattr("proximo.training.backend.CALL_SECONDS", 1e6)  # after a call of one update, calls that fill several rows
    run_dir = trained(tmp_path, "r", updates_per_call=0, eval_episodes=0, total_steps=200 * BATCH, checkpoint_every=100 * BATCH)
    proximo.resume(f"{run_dir}@{100 * BATCH}")
    table = read_rows(run_dir / "metrics.jsonl")
    starts = [row["step"] - row["time/seconds"] * row["time/steps_per_second"] for row in table]
    np.testing.assert_allclose(starts, [0 if row["step"] <= 100 * BATCH else 100 * BATCH for row in table], atol=1e-3)


def test_newest_and_best_checkpoints_are_kept(run):
    evaluations = {row["step"]: row["eval/return_mean"] for row in rows(run) if "eval/return_mean" in row}
    best = last_best(evaluations)
    assert checkpoint.best_step(run) == best
    assert set(checkpoint.steps(run / "checkpoints")) == {TOTAL - 2 * BATCH, TOTAL, best}
    assert proximo.load_policy(f"{run}@best").step == best


def test_eval_episodes_zero_disables_every_evaluation(tmp_path):
    (result,) = train(tmp_path, "r", eval_episodes=0, checkpoint_every=6 * BATCH, total_steps=TOTAL + 5)
    assert not [row for row in rows(result.run_dir) if "eval/return_mean" in row]
    assert checkpoint.best_step(result.run_dir) is None
    assert checkpoint.steps(result.run_dir / "checkpoints") == [12 * BATCH, 18 * BATCH, TOTAL]
    assert result.return_mean is not None, "the return is that of the last episodes of training"
    assert (result.steps, result.interrupted) == (TOTAL, None)
    assert result.steps_per_second == pytest.approx(TOTAL / result.seconds)


def test_division_into_calls_does_not_change_the_rows(tmp_path, monkeypatch):
    # 3 updates in a row, and a checkpoint after every 50: before it comes a shorter row.
    settings = {"total_steps": 300 * BATCH, "updates_per_call": 0, "eval_episodes": 0, "checkpoint_every": 50 * BATCH}
    written = []
    for name, seconds in (("single", 0.0), ("whole", 1e6)):
        monkeypatch.setattr("proximo.training.backend.CALL_SECONDS", seconds)
        run_dir = trained(tmp_path, name, **settings)
        seconds = [row["time/seconds"] for row in read_rows(run_dir / run_directory.METRICS)]
        assert seconds == sorted(set(seconds))
        written.append(rows(run_dir))
    steps = [row["step"] // BATCH for row in written[0]]
    assert steps == sorted({*range(50, 301, 50), *(start + i for start in range(0, 300, 50) for i in range(3, 50, 3))})
    assert written[0] == written[1]


def test_equal_seeds_repeat_also_in_other_calls_and_in_a_group_and_others_differ(run, groups, tmp_path):
    assert final_state(trained(tmp_path, "same", updates_per_call=7, eval_every=5 * BATCH)) == final_state(run)
    other = final_state(trained(tmp_path, "other", seed=6))
    assert other == final_state(groups["serial"] / "seed-6") != final_state(run)


def test_second_training_compiles_nothing_and_uses_its_numbers(tmp_path, monkeypatch):
    numbers = {"learning_rate": "linear(3e-3, 0)", "gamma": 0.9, "ent_coef": 0.01, "max_grad_norm": 1}
    train(tmp_path, "first")
    with compilations() as seen:
        (result,) = train(tmp_path, "second", seed=3, **numbers)
    assert seen == []
    assert result.compile_seconds < 1
    # The mean of the last two of 20 updates.
    rates = [row["train/learning_rate"] for row in rows(result.run_dir) if "train/learning_rate" in row]
    assert rates[-1] == pytest.approx(3e-3 * 1.5 / 20, rel=1e-3)
    monkeypatch.setattr(program_cache, "_kept", type(program_cache._kept)())
    with compilations() as seen:
        fresh = train(tmp_path, "fresh", seed=3, **numbers)[0].run_dir
    assert seen
    assert final_state(fresh) == final_state(result.run_dir)


@pytest.mark.parametrize("mode", ["vmap", "serial"])
def test_each_seed_is_an_ordinary_run(groups, mode, capsys):
    seed_runs = seed_run_dirs(groups[mode])
    assert [path.name for path in seed_runs] == ["seed-5", "seed-6", "seed-7"]
    assert len({final_state(path)["learner.key"] for path in seed_runs}) == 3
    for i, seed_run in enumerate(seed_runs):
        config = run_directory.read_config(seed_run)
        assert (config.run.seed, config.run.seeds) == (5 + i, 1)
        assert [row["step"] for row in rows(seed_run) if "train/entropy" in row] == list(range(64, TOTAL + 1, 64))
    assert main(["eval", str(seed_runs[1]), "--episodes", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 3


@pytest.mark.parametrize("mode", ["vmap", "serial"])
def test_resumed_group_equals_the_uninterrupted_one(groups, mode, tmp_path):
    group = copied(groups[mode], tmp_path)
    assert main(["train", "--resume", f"{group}@{8 * BATCH}"]) == 0
    for seed_run in seed_run_dirs(group):
        assert final_state(seed_run) == final_state(groups[mode] / seed_run.name)
        assert rows(seed_run) == rows(groups[mode] / seed_run.name)


def test_group_whose_seeds_evaluate_differently_is_not_resumed(groups, tmp_path):
    group = copied(groups["serial"], tmp_path)
    changes = {"total_steps": TOTAL + 2 * BATCH, "eval_episodes": 2, "keep_checkpoints": 5, "updates_per_call": 3}
    proximo.resume(group / "seed-6", **changes)
    more = {"total_steps": TOTAL + 4 * BATCH}
    message = rf"^The seeds of {group} have different eval_episodes: resume each seed alone, or give --eval-episodes for all\.$"
    with pytest.raises(ConfigError, match=message):
        proximo.resume(group, **more)
    assert checkpoint.steps(group / "seed-5" / "checkpoints")[-1] == TOTAL
    assert [result.evaluation["episodes"] for result in proximo.resume(group, **more, eval_episodes=3)] == [3, 3, 3]


@pytest.mark.parametrize(
    ("mode", "newest"),
    [
        ("serial", lambda steps: {"seed-6": 8 * BATCH, "seed-7": 0}),  # seed-5 is complete
        ("vmap", lambda steps: {"seed-5": steps[-2], "seed-6": steps[-3], "seed-7": steps[-2]}),
        ("vmap", lambda steps: {"seed-5": steps[0], "seed-6": steps[0], "seed-7": 0}),
        ("vmap", lambda steps: {"seed-6": 4 * BATCH}),
    ],
)
def test_stopped_group_resumes_from_each_or_the_common_checkpoint(groups, tmp_path, capsys, mode, newest):
    group = copied(groups[mode], tmp_path)
    newest = newest(checkpoint.steps(group / "seed-6" / "checkpoints"))
    for name, step in newest.items():
        checkpoint.keep(group / name / "checkpoints", range(step + 1))
    complete = {seed_run.name for seed_run in seed_run_dirs(group)} - newest.keys()
    for name in complete - {"seed-7"}:  # which only an incomplete seed would need
        shutil.rmtree(group / name / "checkpoints" / str(4 * BATCH))
    files = [group / name / "checkpoints" / str(TOTAL) / "meta.json" for name in complete]
    written = [path.stat().st_mtime_ns for path in files]
    assert main(["train", "--resume", str(group)]) == 0
    out = capsys.readouterr().out
    assert ("seed-7: it starts from the beginning" in out) == (newest.get("seed-7") == 0)
    assert [path.stat().st_mtime_ns for path in files] == written, "complete seeds stay as they are"
    for seed_run in seed_run_dirs(group):
        assert final_state(seed_run) == final_state(groups[mode] / seed_run.name)
        assert rows(seed_run) == rows(groups[mode] / seed_run.name)


@pytest.mark.parametrize("first", [4 * BATCH, 0])
def test_vmapped_group_repeats_no_more_than_one_save(groups, tmp_path, capsys, first):
    group = copied(groups["vmap"], tmp_path)
    last = checkpoint.steps(group / "seed-5" / "checkpoints")[-2]
    for name, step in (("seed-5", last), ("seed-6", first), ("seed-7", last)):
        checkpoint.keep(group / name / "checkpoints", range(step + 1))
    before = checkpoint.steps(group / "seed-5" / "checkpoints")
    assert main(["train", "--resume", str(group)]) == 2
    says = f"seed-5 continues from step {last}, and another seed continues from step {first}: resume each seed alone"
    assert says in capsys.readouterr().err
    assert checkpoint.steps(group / "seed-5" / "checkpoints") == before


NO_EVALUATION = {"eval_episodes": 0, "checkpoint_every": BATCH, "normalize_reward": "false", "normalize_observation": "false"}


def test_nan_from_the_environment_stops_and_names_its_source(tmp_path, capsys):
    assert main(train_words(tmp_path, "r", "odd_envs:NanObservation", **NO_EVALUATION, updates_per_call=1)) == 1
    err = capsys.readouterr().err
    run_dir = tmp_path / "odd_envs-NanObservation" / "r"
    assert f"proximo: NaN or infinity in the observation between steps 64 and 96 of {run_dir}" in err
    assert "the environment returned it" in err
    assert "the checkpoint of step 64 is intact" in err
    assert err.count("\n") == 1
    assert checkpoint.steps(run_dir / "checkpoints")[-1] == 64
    assert not any(np.isnan(np.frombuffer(x, np.float32)).any() for name, x in final_state(run_dir).items() if "policy" in name)
    assert proximo.load_policy(str(run_dir)).step == 64


def test_fault_within_a_call_names_the_first_bad_update(tmp_path):
    settings = {**SMALL, **NO_EVALUATION, "checkpoint_every": 10 * BATCH, "updates_per_call": 8}
    with pytest.raises(TrainingError, match=r"in the reward between steps 64 and 96 .*no checkpoint was saved yet"):
        proximo.train("odd_envs:NanReward", **settings, runs_dir=str(tmp_path), name="r")
    (row,) = read_rows(tmp_path / "odd_envs-NanReward" / "r" / "metrics.jsonl")
    assert row["step"] == 64, "the updates before are written: they show the cause"
    assert math.isfinite(row["train/loss"])


@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt, SystemExit])
def test_what_was_learned_is_saved_whatever_fails(tmp_path, monkeypatch, kind):
    """Here the display fails, as if the terminal were closed, and fails again while that is reported."""

    monkeypatch.setattr(Reporter, "evaluated", mock.Mock(side_effect=kind("the terminal has gone")))
    monkeypatch.setattr(Reporter, "stopped", mock.Mock(side_effect=OSError("the terminal has gone")))
    with pytest.raises(kind, match="the terminal has gone"):
        train(tmp_path, "r", eval_every=BATCH * 2, checkpoint_every=TOTAL)
    (step,) = checkpoint.steps(tmp_path / "toys-RandomEnds" / "r" / "checkpoints")
    assert step == BATCH * 2


@pytest.mark.parametrize("error", [EnvError("the pole has fallen off"), EnvironmentFault("the pole has fallen off")])
def test_environment_that_fails_in_a_short_call_is_a_fault_with_its_text_once(tmp_path, monkeypatch, error):
    advance, numbers = JaxBackend.advance, itertools.count(1)

    def fail(self, *arguments):
        if next(numbers) == 3:
            raise error
        return advance(self, *arguments)

    monkeypatch.setattr(JaxBackend, "advance", fail)
    with pytest.raises(EnvironmentFault, match="the pole has fallen off") as caught:
        train(tmp_path, "r")
    assert (caught.value is error) == isinstance(error, EnvironmentFault)
    assert (tmp_path / "toys-RandomEnds" / "r" / "failure.txt").read_text() == f"{error}\n"


@pytest.mark.parametrize("mode", ["vmap", "serial"])
def test_failed_seed_does_not_stop_the_others(tmp_path, capsys, mode):
    settings = {**SMALL, "normalize_observation": False, "seeds": 4, "seeds_mode": mode, "runs_dir": str(tmp_path), "name": "g"}
    with pytest.raises(TrainingError) as caught:
        proximo.train("odd_envs:Unlucky", **settings)
    group = tmp_path / "odd_envs-Unlucky" / "g"
    failed = [m.name for m in seed_run_dirs(group) if (m / "failure.txt").exists()]
    assert 0 < len(failed) < 4, failed
    for seed_run in seed_run_dirs(group):
        steps = checkpoint.steps(seed_run / "checkpoints")
        assert (f"of {seed_run} (" in str(caught.value)) == (seed_run.name in failed)
        assert (TOTAL in steps) == (seed_run.name not in failed)
    with pytest.raises(ConfigError, match="is complete at step"):
        proximo.resume(group)
    longer = TOTAL + 2 * BATCH
    with contextlib.suppress(TrainingError):
        proximo.resume(group, total_steps=longer)
    for seed_run in seed_run_dirs(group):
        assert (seed_run.name in failed) == (TOTAL not in checkpoint.steps(seed_run / "checkpoints"))


def test_resuming_one_vmapped_seed_alone_warns(groups, tmp_path, capsys):
    group = copied(groups["vmap"], tmp_path)
    assert main(["train", "--resume", f"{group / 'seed-6'}@{8 * BATCH}"]) == 0
    assert "3 seeds were trained in one program before, and 1 now: the last bits may differ" in capsys.readouterr().out


def test_config_for_another_environment_raises(tmp_path):
    config = proximo.make_config("toys:RandomEnds", {**SMALL, "runs_dir": str(tmp_path)}, preset=False)
    with pytest.raises(ConfigError, match="env = 'toys:Counting', but config is for 'toys:RandomEnds'"):
        proximo.train("toys:Counting", config=config)
    with pytest.raises(ConfigError, match="num_minibatches = 3 does not divide"):
        proximo.train(config=config, num_minibatches=3)
    assert list(tmp_path.iterdir()) == []
