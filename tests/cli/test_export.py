"""``proximo export``: a run by any of its names, in files; mistakes in one sentence."""

import json

import pytest

from commands import GRU, train_words
from proximo.cli import main
from proximo.export import parity


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    assert main(train_words(folder, "r", "proximo:PocMemory", **GRU)) == 0
    return folder


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(parity, "CALLS", 2)


@pytest.fixture
def shorter(monkeypatch):
    monkeypatch.setattr(parity, "SIZES", (1,))
    monkeypatch.setattr(parity, "STEPS", 10)


def exported(runs, *words):
    return main(["export", *words, "--runs-dir", str(runs)])


def test_a_run_becomes_a_folder_of_four_files(runs, capsys):
    assert exported(runs, "last") == 0
    out, err = capsys.readouterr()
    folder = runs / "proximo-PocMemory" / "r" / "export"
    assert err == ""
    assert f"{folder}: README.md, metadata.json, policy.onnx, proximo_policy.py\n" in out
    assert "largest error against JAX over 50 steps with resets: " in out
    assert "median microseconds per step of 1 environment: jax " in out
    assert "median microseconds per step of 64 environments: jax " in out
    assert json.loads((folder / "metadata.json").read_text())["environment"] == "proximo:PocMemory"


def test_stochastic_export_has_a_noise_input(runs, tmp_path, capsys, shorter):
    assert exported(runs, "r", "--stochastic", "--out", str(tmp_path / "out")) == 0
    metadata = json.loads((tmp_path / "out" / "metadata.json").read_text())
    [noise] = [leaf for leaf in metadata["inputs"] if leaf["name"] == "noise"]
    assert "gumbel" in noise["meaning"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["r", "--batch", "0"], "--batch 0: expected at least 1."),
        (
            ["r", "--format", "numpy"],
            "--format: an export has one format, ONNX, which its proximo_policy.py runs by ONNX Runtime; leave it out.",
        ),
    ],
)
def test_mistakes_are_reported_in_one_sentence(runs, capsys, words, sentence):
    assert exported(runs, *words) == 2
    err = capsys.readouterr().err
    assert err.startswith("proximo: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_group_without_a_named_seed_exits_2(runs, tmp_path, capsys):
    group = tmp_path / "proximo-PocMemory" / "g"
    for seed in (0, 1):
        (group / f"seed-{seed}").mkdir(parents=True)
        (group / f"seed-{seed}" / "config.yaml").write_text("{}")
    assert main(["export", str(group), "--runs-dir", str(tmp_path)]) == 2
    assert "contains several seeds (seed-0, seed-1): name one of them" in capsys.readouterr().err
