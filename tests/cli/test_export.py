"""``proximo export``: a run by any of its names, in files."""

import json

from commands import GRU, trained
from proximo.cli import main
from proximo.export import parity


def test_a_run_becomes_a_folder_of_four_files(tmp_path, monkeypatch, capsys):
    for name, value in (("CALLS", 2), ("SIZES", (1,)), ("STEPS", 10)):
        monkeypatch.setattr(parity, name, value)
    folder = trained(tmp_path, "r", "proximo:PocMemory", **GRU, eval_episodes=0) / "export"
    capsys.readouterr()
    assert main(["export", "last", "--stochastic", "--runs-dir", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"{folder}: README.md, metadata.json, policy.onnx, proximo_policy.py\n" in out
    assert "largest error against JAX over 10 steps with resets: " in out
    assert "median microseconds per step of 1 environment: jax " in out
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["environment"] == "proximo:PocMemory"
    assert "gumbel" in next(leaf["meaning"] for leaf in metadata["inputs"] if leaf["name"] == "noise")
