"""``proximo check`` prints a line for each check and a verdict, or one JSON object, and sets the exit code."""

import json
import re

import pytest

from commands import Process
from proximo.cli import check, main


def test_sound_environment_passes_every_check_and_exits_0():
    with Process("check", "broken_envs:Walk") as process:  # without the import hook of the tests
        code, out, err = process.end()
    *lines, verdict = out.splitlines()
    assert (code, err) == (0, "")
    assert len(lines) == 8
    assert all(line.startswith("✓ ") and line.endswith(".") for line in lines)
    assert verdict == "broken_envs:Walk can be trained: no problem was found."


@pytest.mark.parametrize(("env_id", "code"), [("broken_envs:Walk", 0), ("broken_envs:JaxBranch", 2)])
def test_json_is_one_object(env_id, code, capsys):
    assert main(["check", env_id, "--json"]) == code
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    report = json.loads(out)
    assert (report["env"], report["ok"]) == (env_id, code == 0)
    assert {tuple(finding) for finding in report["findings"]} == {("check", "level", "message")}
    assert report["not_checked"][:1] == (["side effects"] if "JaxBranch" in env_id else [])
    assert report["compile_seconds"] > 0 or code == 0


SMALL = r"✗ policy .*Images of 2×12 are too small for small_cnn: expected at least 3×3; set encoder = mlp\.$"
LOST = r"✗ seeding  .*The process that plays the environment was killed by SIGSEGV"


@pytest.mark.parametrize(
    ("words", "code", "lines"),
    [
        ("broken_envs:NanReward", 2, [r"✗ steps ", r"Not checked: seeding, observation scale, reward scale, episodes, time limit, Gymnasium\.$",
                                      r"broken_envs:NanReward cannot be trained as it is: 1 error"]),
        ("broken_envs:Hangs --seconds 5", 0, [r"✓ steps", r"! time ", r"Not checked: seeding, .*, Gymnasium\.$", r".*can be trained, with 1 warning\.$"]),
        ("broken_envs:HangsBefore --seconds 1", 2, [r"✗ time ", r"Not checked: making\.$", r".* 1 error\.$"]),
        ("broken_envs:Crashes", 2, [r"✓ steps", LOST, r"Not checked: seeding, .*, Gymnasium\.$", r".* 1 error\.$"]),
        ("CartPol-v1", 2, [r"✗ making +Unknown environment 'CartPol-v1' \(did you mean 'CartPole-v1'\?\)"]),
        ("broken_envs:SmallImages", 2, [SMALL, r"broken_envs:SmallImages cannot be trained as it is: 1 error\.$"]),
        ("broken_envs:SmallImages --encoder mlp", 0, [r"✓ policy"]),
    ],
)  # fmt: skip
def test_what_is_found_is_printed_line_by_line(words, code, lines, capfd):
    assert main(["check", *words.split()]) == code
    out, err = capfd.readouterr()
    printed = [*out.splitlines(), *err.splitlines()]
    assert [line for line in lines if not any(re.match(line, text) for text in printed)] == []
    assert ("printed by the environment" in err) == ("Hangs" in words or "Crashes" in words)


def test_without_worker_processes_it_is_refused_by_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(check, "POSIX", False)
    assert main(["check", "broken_envs:Walk"]) == 2
    assert capsys.readouterr().err.endswith("plays the environment in a worker process, which needs Linux or macOS.\n")
