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
    for name, value in (("CALLS", 2), ("SIZES", (1,)), ("STEPS", 10)):
        monkeypatch.setattr(parity, name, value)


def exported(runs, *words):
    return main(["export", *words, "--runs-dir", str(runs)])


def test_a_run_becomes_a_folder_of_four_files(runs, capsys):
    assert exported(runs, "last", "--stochastic") == 0
    out, err = capsys.readouterr()
    folder = runs / "proximo-PocMemory" / "r" / "export"
    assert err == ""
    assert f"{folder}: README.md, metadata.json, policy.onnx, proximo_policy.py\n" in out
    assert "largest error against JAX over 10 steps with resets: " in out
    assert "median microseconds per step of 1 environment: jax " in out
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["environment"] == "proximo:PocMemory"
    assert "gumbel" in next(leaf["meaning"] for leaf in metadata["inputs"] if leaf["name"] == "noise")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["r", "--batch", "0"], "--batch 0: expected at least 1."),
        (["r", "--format", "numpy"],
         "--format: an export has one format, ONNX, which its proximo_policy.py runs by ONNX Runtime; leave it out."),
        (["g"], "contains several seeds (seed-0, seed-1): name one of them"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_in_one_sentence(runs, capsys, words, sentence):
    for seed in (0, 1):
        (folder := runs / "proximo-PocMemory" / "g" / f"seed-{seed}").mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text("{}")
    assert exported(runs, *words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith("proximo: ")) == ("", 1, True)
    assert sentence in err
