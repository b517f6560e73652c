"""Policies that ship with proximo act as their cards say, and their folders stay as they are."""

import json

import pytest

import proximo
from proximo.cli import main
from proximo.config import LEAVES
from proximo.config.schema import WORKER_SETTINGS
from proximo.errors import CheckpointError, EnvError
from proximo.publish import pull, push
from proximo.report import write_report
from proximo.settings import make_config
from proximo.storage import zoo
from proximo.storage.run_directory import read_config

EPISODES = 2
NAMES = zoo.names()


def files():
    return {path: path.stat().st_mtime_ns for path in zoo.FOLDER.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", NAMES)
def test_policy_reaches_the_return_on_its_card(name):
    try:
        policy = proximo.load_policy(name)
    except EnvError as error:
        if "pip install" not in str(error):
            raise
        pytest.skip(str(error))
    text, evaluation = (zoo.find(name) / "README.md").read_text(), json.loads((zoo.find(name) / "evaluation.json").read_text())
    for actions in ("greedy", "sampled"):
        mean, deviation = evaluation[actions]["return_mean"], evaluation[actions]["return_std"]
        assert f"| {actions} | {mean:,.2f} ± {deviation:,.2f} |" in text
        settings, greedy = evaluation["env_settings"], actions == "greedy"
        played = proximo.evaluate(
            policy, EPISODES, deterministic=greedy, seed=evaluation["seed"], env_settings=settings
        ).summary()
        # Four standard errors: rounding differs between machines, and then the actions and the episodes differ.
        assert played["return_mean"] == pytest.approx(mean, abs=4 * deviation / EPISODES**0.5 + 0.01 * abs(mean)), actions
        if evaluation[actions]["success_rate"] is not None:
            assert played["success_rate"] == pytest.approx(evaluation[actions]["success_rate"], abs=0.1), actions


def test_policies_are_small_and_complete():
    sizes = {name: sum(path.stat().st_size for path in zoo.find(name).rglob("*") if path.is_file()) for name in NAMES}
    names = "BipedalWalker CartPole CartPoleNoVel HalfCheetah Hopper LunarLander MemoryS9 PocMemory SpaceInvaders-MinAtar"
    assert set(sizes) == {zoo.PREFIX + name for name in names.split()}
    assert max(sizes.values()) <= 300_000
    assert sum(sizes.values()) <= 5_000_000


def test_policies_were_trained_with_the_preset():
    smaller = {"zoo:MemoryS9": {"hidden_sizes"}, "zoo:SpaceInvaders-MinAtar": {"cnn_features"}}
    of_training = {leaf.name for leaf in LEAVES.values() if leaf.group != "run" and leaf.name not in WORKER_SETTINGS}
    for policy in NAMES:
        trained = read_config(zoo.find(policy))
        preset = make_config(trained.env.id)
        changed = {name for name in of_training if LEAVES[name].value_in(trained) != LEAVES[name].value_in(preset)}
        assert changed == smaller.get(policy, set())


def test_unknown_name_lists_the_policies(capsys):
    with pytest.raises(
        CheckpointError, match=r"There is no policy zoo:PocMemry \(did you mean 'zoo:PocMemory'\?\)\..* zoo:CartPole, "
    ):
        proximo.load_policy("zoo:PocMemry")
    for words in (["watch", "zoo:"], ["watch", "zoo:Foo", "--agent", "random"]):
        assert main(words) == 2
        assert "zoo:CartPole, zoo:CartPoleNoVel" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="zoo:CartPole has no best checkpoint"):
        proximo.load_policy("zoo:CartPole@best")


def test_commands_that_need_a_run_answer_with_pull(tmp_path):
    before = files()
    for call in (
        lambda name: proximo.resume(name, total_steps=10**6),
        lambda name: push(name, tmp_path / "out"),
        lambda name: write_report([name], out=tmp_path / "report"),
    ):
        with pytest.raises(
            CheckpointError, match=r"zoo:CartPole is a policy that ships with proximo: .*`proximo pull zoo:CartPole`"
        ):
            call("zoo:CartPole")
        with pytest.raises(CheckpointError, match="`proximo pull zoo:CartPole`"):
            call(str(zoo.FOLDER / "CartPole"))
    assert files() == before


def test_files_made_from_a_policy_are_in_the_working_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = files()
    assert main(["watch", "zoo:CartPole", "--gif", "--episodes", "1", "--max-steps", "3"]) == 0
    assert main(["export", "zoo:CartPole"]) == 0
    assert main(["eval", "zoo:CartPole", "--episodes", "2", "--greedy"]) == 0
    out = capsys.readouterr().out
    assert "zoo:CartPole on CartPole-v1 at step" in out
    assert "\nzoo:CartPole at step" in out
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"zoo-CartPole/videos/watch-99328.gif", "zoo-CartPole/export/policy.onnx"} <= written
    assert all(path.startswith("zoo-CartPole") for path in written)
    assert files() == before


def test_pulled_policy_is_a_run_that_learns_on(tmp_path):
    run_dir = pull("zoo:CartPole", runs_dir=str(tmp_path))
    assert run_dir == tmp_path / "CartPole-v1" / "zoo"
    [result] = proximo.resume(run_dir, total_steps=101_376, eval_episodes=0)
    assert result.steps == 101_376
    agent = proximo.load("zoo:CartPole", verbose=0)
    assert agent.step == 99_328
    assert agent.evaluate(4).episode_return.mean() == 500
