"""``proximo report``: from runs by any of their names to a page, a picture and a table."""

import json
from pathlib import Path

import pytest

from commands import trained
from made_runs import made_group, made_run
from proximo.cli import main


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two groups and a run on another environment, in one folder of runs."""
    folder = tmp_path_factory.mktemp("runs")
    for memory in ("gru", "lstm"):
        made_group(folder / "gymnax-CartPole-v1" / memory, memory=memory, name=memory)
    made_run(folder / "gymnax-Acrobot-v1" / "a", env="gymnax:Acrobot-v1")
    return folder


def reported(capsys, runs, *words):
    assert main(["report", *map(str, words), "--runs-dir", str(runs)]) == 0
    return capsys.readouterr()


def test_report_of_a_real_training_is_written_to_its_folder(tmp_path, capsys):
    run_dir = trained(tmp_path / "runs", "r", seeds=2)
    capsys.readouterr()
    out, err = reported(capsys, tmp_path / "runs", "last")
    assert err == ""
    for name in ("html", "png", "csv"):
        assert (run_dir / f"report.{name}").stat().st_size > 1000
        assert f"{run_dir}/report.{name}" in out
    assert "Training return" in (run_dir / "report.html").read_text()
    text = (run_dir / "report.csv").read_text()
    assert "r/seed-1" in text
    assert "train/approx_kl" in text
    assert "interrupted" not in out


def test_report_of_several_runs_is_written_to_a_separate_folder(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, _ = reported(capsys, runs, "gru", "lstm", "a")
    names = ["gymnax:CartPole-v1 gru", "gymnax:CartPole-v1 lstm", "gymnax:Acrobot-v1 a"]
    assert [" ".join(line.split()[:2]) for line in out.splitlines()[1:4]] == names
    assert out.splitlines()[-3:] == ["report/report.html", "report/report.png", "report/report.csv"]
    assert (tmp_path / "report" / "report.html").is_file()


def test_json_is_one_object_with_files_and_table(runs, tmp_path, capsys, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    words = ("gru", "lstm", "--by", "network.memory", "--out", tmp_path / "o", "--json", "--open")
    out, err = reported(capsys, runs, *words)
    assert out.count("\n") == 1
    assert err == f"warning: no browser was found to open {tmp_path}/o/report.html.\n"
    found = json.loads(out)
    assert Path(found["html"]).is_file()
    assert [row["group"] for row in found["table"]] == ["memory=gru", "memory=lstm"]
    assert [row["settings"] for row in found["table"]] == [{"memory": "gru"}, {"memory": "lstm"}]
    low, high = found["table"][0]["final"]["ci95"]
    assert low <= found["table"][0]["final"]["iqm"] <= high
    assert len(found["improvement"]) == 1


def test_run_that_has_not_started_is_listed_with_the_others(runs, tmp_path, capsys):
    for name, env in (("same", "gymnax:Acrobot-v1"), ("other", "gymnax:CartPole-v1")):
        (made_run(tmp_path / name, env=env) / "metrics.jsonl").unlink()
    out, err = reported(capsys, runs, "a", tmp_path / "same", tmp_path / "other", "--out", tmp_path / "out", "--by", "name")
    assert err == ""
    assert [" ".join(line.split()[:5]) for line in out.splitlines()[1:4]] == [
        "gymnax:Acrobot-v1 a 1 99.4 one",
        "gymnax:Acrobot-v1 same 1 (1 not",
        "gymnax:CartPole-v1 other 1 (1 not",
    ]
    no_place = [runs / "gymnax-Acrobot-v1" / "a", "--out", "/dev/null/x"]
    for words, sentence in (
        ([tmp_path / "same", tmp_path / "other"], f"No run has metrics yet ({tmp_path}/same, {tmp_path}/other): wait for the "),
        (no_place, "Cannot write the report to /dev/null/x (Not a directory): choose"),
    ):
        assert main(["report", *map(str, words)]) == 2
        assert capsys.readouterr().err.startswith(f"proximo: {sentence}")
