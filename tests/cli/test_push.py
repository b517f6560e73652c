"""``proximo push`` and ``proximo pull``: there and back in words; mistakes in one sentence."""

import json
import re

from proximo.cli import main


def pushed(runs, *words):
    return main(["push", *map(str, words), "--episodes", "3", "--no-clip", "--runs-dir", str(runs)])


def test_pushed_policy_can_be_pulled(runs, tmp_path, capsys):
    assert pushed(runs, "r", tmp_path / "poc", "--env-settings", "show_steps=1") == 0
    out, err = capsys.readouterr()
    assert out.endswith(f"Fetch it with:  proximo pull {tmp_path / 'poc'}\n")
    assert "evaluation.json" in out
    assert re.search(r"\ngreedy: return \S+ ± \S+ \(standard deviation\), 95 % of the mean \S+ … \S+, over 3 episodes\n", out)
    assert "replay.mp4" not in out
    assert "evaluating" in err
    assert "`show_steps=1`" in (tmp_path / "poc" / "README.md").read_text()
    assert main(["pull", str(tmp_path / "poc"), "--runs-dir", str(tmp_path / "mine"), "--json"]) == 0
    run_dir = json.loads(capsys.readouterr().out)["run"]
    assert run_dir == str(tmp_path / "mine" / "proximo-PocMemory" / "r")
    assert main(["eval", run_dir, "--episodes", "3", "--json", "--env-settings", "show_steps=1"]) == 0
    again = json.loads(capsys.readouterr().out)
    published = json.loads((tmp_path / "poc" / "evaluation.json").read_text())
    assert {name: again[name] for name in ("greedy", "sampled")} == {name: published[name] for name in ("greedy", "sampled")}


def test_push_and_pull_name_the_seed_of_a_group(runs, tmp_path, capsys):
    assert pushed(runs, "g/seed-1", tmp_path / "poc", "--json") == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    published = json.loads(out)
    assert published["evaluation"]["greedy"]["episodes"] == 3
    files = [path.relative_to(tmp_path / "poc").as_posix() for path in (tmp_path / "poc").rglob("*") if path.is_file()]
    assert sorted(published["files"]) == sorted(files)
    assert main(["pull", str(tmp_path / "poc"), "--runs-dir", str(tmp_path / "mine")]) == 0
    assert capsys.readouterr().out.startswith(str(tmp_path / "mine" / "proximo-PocMemory" / "g-seed-1"))
