"""Trainings on Gymnasium environments: what is written, what a resume restores, and which faults end it."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import proximo
from commands import BATCH, SMALL, Process, copied, final_state, rows, train_words, trained
from process_states import alive, gone_within, state_and_parent
from proximo.agent import load_like
from proximo.cli import main
from proximo.errors import ConfigError, EnvError
from proximo.storage import checkpoint
from proximo.tracking.run_trackers import read_rows

TOTAL = SMALL["total_steps"]
WALK = "gym_toys:Walk"
LONG = {"total_steps": 10_000_000, "eval_episodes": 0, "num_workers": 2, "checkpoint_every": 4 * BATCH}


def children(pid):
    """Living child processes of ``pid``."""
    processes = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    return [process for process in processes if state_and_parent(process)[1] == str(pid) and alive(process)]


def saved(folder):
    return sorted(folder.glob("*/*/checkpoints/[0-9]*"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("host"), "r", WALK, num_workers=2, checkpoint_every=3 * BATCH, keep_checkpoints=50)


def test_rows_have_episodes_shares_of_time_and_restarts(run):
    table = [row for row in read_rows(run / "metrics.jsonl") if "train/loss" in row]
    assert [row["step"] for row in table][-1] == TOTAL
    for row in table:
        assert {"rollout/return_mean", "rollout/length_mean", "rollout/success_rate", "rollout/restarts"} <= set(row)
        assert row["rollout/restarts"] == 0
        shares = [row[f"time/share_{name}"] for name in ("environment", "policy", "update", "rest")]
        assert sum(shares) == pytest.approx(1, abs=1e-6)
    assert any("eval/return_mean" in row for row in read_rows(run / "metrics.jsonl"))


def test_two_resumes_of_one_checkpoint_are_equal_bit_for_bit(run, tmp_path):
    first, second = (copied(run, tmp_path / name) for name in "ab")
    with Process("train", "--resume", f"{first}@{3 * BATCH}", "--json") as process:
        code, out, err = process.end()
    assert code == 0, err
    assert json.loads(out)["steps"] == TOTAL
    assert main(["train", "--resume", f"{second}@{3 * BATCH}"]) == 0
    assert (final_state(first), rows(first)) == (final_state(second), rows(second))
    assert final_state(first) != final_state(run), "environments start new episodes: it is not the uninterrupted run"


def test_resume_continues_policy_optimizer_and_counters_exactly(run, tmp_path):
    """A resume starts with the content of the checkpoint."""
    run_dir, step = copied(run, tmp_path), 3 * BATCH
    before = safetensors.numpy.load_file(run_dir / "checkpoints" / str(step) / "state.safetensors")
    assert main(["train", "--resume", f"{run_dir}@{step}", "--total-steps", str(step + BATCH)]) == 0
    after = safetensors.numpy.load_file(run_dir / "checkpoints" / str(step + BATCH) / "state.safetensors")
    counts = [name for name in before if name.startswith("learner.optimizer") and before[name].ndim == 0]
    assert counts
    for name in counts:
        assert after[name] == before[name] + 4, "two epochs of two minibatches"
    weights = [name for name in before if name.startswith("learner.policy.torsos") and name.endswith("weight")]
    assert weights
    for name in weights:
        assert 0 < np.abs(after[name] - before[name]).max() < 5 * 4 * 3e-4, "four steps of Adam at 3e-4 away, not a fresh network"
    np.testing.assert_array_equal(after["learner.steps"] - before["learner.steps"], [BATCH, 0])


def test_several_seeds_train_one_after_the_other(tmp_path):
    settings = {**SMALL, "num_workers": 0, "runs_dir": str(tmp_path)}
    results = proximo.train(WALK, seeds=2, name="g", preset=False, **settings)
    assert [r.run_dir.name for r in results] == ["seed-0", "seed-1"]
    [alone] = proximo.train(WALK, seed=1, name="alone", preset=False, **settings)
    assert final_state(results[1].run_dir) == final_state(alone.run_dir), "a seed of a group is the run of that seed"


@pytest.mark.parametrize(
    ("env", "settings", "error", "sentence"),
    [
        ("toys:RandomEnds", {"learner_lag": 1}, ConfigError, r"learner_lag is for Gymnasium environments: it has no effect on toys:RandomEnds, a JAX"),
        (WALK, {"seeds": 2, "seeds_mode": "vmap"}, ConfigError, r"seeds_mode = vmap: gym_toys:Walk is a Gymnasium environment"),
        (WALK, {"num_workers": 3, "overlap": "true"}, ConfigError, r"a multiple of 2 with overlap"),
        ("gym_toys:Misbehaving", {"env_settings": "what=constructor"}, EnvError, r"raised OSError: no simulator on port 4242"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_raise_before_a_directory_exists(tmp_path, env, settings, error, sentence):
    with pytest.raises(error, match=sentence):
        proximo.train(config=proximo.make_config(env, {**SMALL, **settings, "runs_dir": str(tmp_path / "runs")}, preset=False))
    assert not list(tmp_path.glob("runs/*/*"))


def test_a_file_cannot_call_a_function_of_a_library_unless_it_is_repeated(tmp_path, capsys):
    make = "gymnasium:make"
    run_dir = str(trained(tmp_path, "f", make, env_settings="id=CartPole-v1", eval_env=make, num_workers=0))
    capsys.readouterr()
    commands = {
        ("eval", run_dir, "--episodes", "2"): ("--env", make),
        ("train", "--resume", run_dir, "--total-steps", str(TOTAL + 2 * BATCH)): (make, "--eval-env", make),
        ("train", "--config", f"{run_dir}/config.yaml", "--name", "g", "--runs-dir", str(tmp_path)): (make, "--eval-env", make),
    }
    for words, repeated in commands.items():
        for given in ((), ("--eval-env", make) if words[0] == "train" else (), repeated[:1] if words[0] == "train" else ()):
            assert main([*words, *given]) == 2
            assert "'gymnasium:make' is a function of an installed library" in capsys.readouterr().err
        assert main([*words, *repeated]) == 0
        capsys.readouterr()
    with pytest.raises(EnvError, match=r"is a function of an installed library"):
        proximo.load(run_dir, env=make)
    agent = proximo.load(run_dir, env=make, eval_env=make)
    assert load_like(agent.set_env(make, id="CartPole-v1"), agent.save(tmp_path / "again"), {}).config.env.id == make
    assert agent.evaluate(2, env_settings={"max_episode_steps": 3}).summary()["length_mean"] <= 3
    for act in (proximo.load_policy, proximo.resume):
        with pytest.raises((EnvError, ConfigError)):
            act(run_dir)
    assert proximo.load_policy(run_dir, env=make).env.id == make
    assert len(proximo.evaluate(run_dir, 2, env=make).length) == 2
    with pytest.raises(ConfigError, match=r"^The environment cannot change when a run is resumed"):
        proximo.resume(run_dir, env="CartPole-v1")


@pytest.mark.parametrize(
    ("workers", "what", "sentence"),
    [
        (0, "raise", 'raise ZeroDivisionError("the pole has fallen off")'),
        (2, "raise", 'raise ZeroDivisionError("the pole has fallen off")'),
        (0, "reward nan", "returned the reward nan"),
    ],
)
def test_an_environment_that_fails_stops_the_training_after_saving(tmp_path, capsys, workers, what, sentence):
    settings = {**SMALL, "num_workers": workers, "env_settings": f"what={what},at=30"}
    assert main(train_words(tmp_path, "r", "gym_toys:Misbehaving", **settings)) == 1
    err = capsys.readouterr().err
    assert "gym_toys:Misbehaving.step of environment 0 (seed " in err
    assert sentence in err
    run_dir = next(tmp_path.glob("*/r"))
    assert sentence in (run_dir / "failure.txt").read_text(), "a report counts the run as failed"
    assert checkpoint.steps(run_dir / "checkpoints")[-1] == 3 * BATCH, "three updates of eight steps came before"
    assert read_rows(run_dir / "metrics.jsonl")[-1]["step"] == 3 * BATCH


# The observation of step 1200 ends an episode and is never acted upon.
@pytest.mark.parametrize(("where", "update", "step"), [("observation", 150, 1), ("reward", 149, 7)])
def test_nan_after_the_first_checks_names_the_environment(tmp_path, capsys, where, update, step):
    words = train_words(tmp_path, "r", "gym_toys:LateNaN", num_workers=0, env_settings=f"where={where}", total_steps=6400)
    assert main(words) == 1
    err = capsys.readouterr().err
    assert f"NaN or infinity in the {where} between steps {update * BATCH} and {(update + 1) * BATCH}" in err
    assert f"environment 0 gave it as {where} in step {step} of the rollout" in err


def test_killed_worker_is_reported_and_training_completes(tmp_path):
    words = train_words(tmp_path, "r", "gym_toys:Countdown", num_workers=2, total_steps=200 * BATCH, eval_episodes=0)
    with Process(*words) as process:
        process.wait_for(lambda: len(children(process.process.pid)) == 2)
        process.wait_for(lambda: saved(tmp_path))
        victim = children(process.process.pid)[0]
        os.kill(victim, signal.SIGKILL)
        code, out, err = process.end()
    assert code == 0, err
    assert "was killed by SIGKILL: it is restarted with new seeds (restart 1 of at most 100)" in out + err
    table = [row for row in read_rows(next(tmp_path.glob("*/r")) / "metrics.jsonl") if "rollout/restarts" in row]
    assert sum(row["rollout/restarts"] for row in table) == 1


@pytest.mark.parametrize(("what", "how"), [("hang", "SIGINT"), ("nothing", "SIGKILL")])
def test_no_process_outlives_the_training(tmp_path, what, how):
    """With a hung environment too; what was learned before it hung is saved where the end can be noticed."""
    words = train_words(tmp_path, "r", "gym_toys:Misbehaving", **LONG, env_settings=f"what={what},at=200")
    with Process(*words, before="from proximo.training import interrupts\ninterrupts.GRACE_SECONDS = 1.0") as process:
        process.wait_for(lambda: len(children(process.process.pid)) == 2)
        process.wait_for(lambda: saved(tmp_path))
        time.sleep(2.0)  # long enough to come to the step that hangs
        workers = children(process.process.pid)
        process.send(getattr(signal, how))
        code, out, err = process.end(30)
    assert len(workers) == 2
    assert code == (130 if how == "SIGINT" else -signal.SIGKILL), err
    assert gone_within(5.0, workers)
    if how == "SIGINT":
        assert "Go on with: proximo train --resume" in out
        if what == "hang":
            assert checkpoint.steps(next(tmp_path.glob("*/r")) / "checkpoints")[-1] == 24 * BATCH, "199 steps are 24 updates of 8"
