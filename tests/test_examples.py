"""What the README and the examples show works as it stands there."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from proximo.cli import main

ROOT = Path(__file__).parents[1]


def _module(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.learning
def test_sweep_trains_every_learning_rate_in_one_program(capsys):
    """On an environment of gymnax."""
    result = _module("sweep").main(total_steps=5_120)
    assert len(result) == 3
    assert all(8 < mean < 500 for mean in result.values())
    assert capsys.readouterr().out.count("learning rate") == 3


@pytest.mark.learning
def test_own_gymnasium_environment_is_sound_and_is_learned(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)
    assert main(["check", "own_gymnasium_environment:Grid"]) == 0
    assert "can be trained" in capsys.readouterr().out
    words = ["train", "own_gymnasium_environment:Grid", "--total-steps", "40000", "--num-workers", "0", "--learning-rate", "1e-3"]
    assert main(words) == 0
    assert main(["eval", "last", "--episodes", "200", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["success_rate"] > 0.98


@pytest.mark.learning
def test_own_environment_trains_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)
    assert main(["train", "own_environment:Drift", "--smoke", "--env-settings", "wind=0.5"]) == 0
    said = capsys.readouterr().out
    assert "own_environment:Drift: Box(2,) float32 → Box(1,) float32" in said
    assert main(["eval", "last", "--episodes", "3"]) == 0
    assert "3 episodes each" in capsys.readouterr().out


@pytest.mark.learning
def test_python_of_the_readme_runs(tmp_path, monkeypatch):
    """Some of it on an environment of gymnax."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for page, count in (("README.md", 3), ("docs/publishing.md", 1), ("docs/run-directory.md", 1), ("docs/python.md", 3)):
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
        assert len(blocks) == count
        for block in blocks:
            exec(compile(block, page, "exec"), names)
    assert "learner.policy.critic.output.weight" in names["policy"]
    assert names["result"].mean_return > 150
    assert names["agent"].step > 28_000
    assert len(names["metrics"]["rollout/return_mean"]) == names["config"].total_updates


def test_every_flag_in_the_readme_exists():
    from proximo.cli.train import parse

    lines = re.findall(r"^    proximo train (.*?)(?:  +#.*)?$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(lines) >= 6
    for line in lines:
        parse(re.findall(r'"[^"]*"|\S+', line.split("  #")[0]))
