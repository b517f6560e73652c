"""``proximo check`` prints a line for each check and a verdict, or one JSON object, and sets the exit code."""

import json
import re

import pytest

from commands import Process
from proximo.cli import main


def test_sound_environment_passes_every_check_and_exits_0():
    with Process("check", "broken_envs:Walk") as process:  # without the import hook of the tests
        code, out, err = process.end()
    *lines, verdict = out.splitlines()
    assert (code, err) == (0, "")
    assert len(lines) == 8
    assert all(line.startswith("✓ ") and line.endswith(".") for line in lines)
    assert verdict == "broken_envs:Walk can be trained: no problem was found."


def test_an_error_has_a_cross_and_exit_2(capsys):
    assert main(["check", "broken_envs:NanReward"]) == 2
    lines = capsys.readouterr().out.splitlines()
    (crossed,) = [line for line in lines if line.startswith("✗")]
    assert crossed.startswith("✗ steps ")
    assert lines[-2] == "Not checked: seeding, observation scale, reward scale, episodes, time limit, Gymnasium."
    assert lines[-1].startswith("broken_envs:NanReward cannot be trained as it is: 1 error")


@pytest.mark.parametrize(("env_id", "code"), [("toys:RandomEnds", 0), ("broken_envs:JaxBranch", 2)])
def test_json_is_one_object(env_id, code, capsys):
    assert main(["check", env_id, "--json"]) == code
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    report = json.loads(out)
    assert (report["env"], report["ok"]) == (env_id, code == 0)
    assert {tuple(finding) for finding in report["findings"]} == {("check", "level", "message")}
    assert report["not_checked"][:1] == (["side effects"] if "JaxBranch" in env_id else [])
    assert (report["compile_seconds"] > 0) == (env_id.split(":")[-1] in ("RandomEnds", "JaxBranch"))


@pytest.mark.parametrize(
    ("name", "seconds", "code", "line", "verdict"),
    [
        ("Hangs", 8, 0, "! time ", "can be trained, with 1 warning."),
        ("HangsBefore", 1, 2, "✗ time ", "1 error."),
        ("Crashes", 60, 2, "✗ seeding  .*The process that plays the environment was killed by SIGSEGV", "1 error."),
    ],
)
def test_environment_that_hangs_or_crashes_ends_the_check(name, seconds, code, line, verdict, capfd):
    assert main(["check", f"broken_envs:{name}", "--seconds", f"{seconds}"]) == code
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert any(re.match(line, text) for text in lines)
    assert lines[-1].endswith(verdict)
    missing = "making" if "Before" in name else "seeding, .*, Gymnasium"
    assert re.fullmatch(rf"Not checked: {missing}\.", lines[-2])
    assert "✓ steps" in out or "Before" in name
    assert "printed by the environment" in err


def test_environment_that_cannot_be_created_is_a_finding(capsys):
    assert main(["check", "CartPol-v1"]) == 2
    assert re.match(r"✗ making +Unknown environment 'CartPol-v1' \(did you mean 'CartPole-v1'\?\)", capsys.readouterr().out)


def test_settings_reach_the_environment_and_invalid_ones_exit_2(capsys):
    assert main(["check", "broken_envs:Reused", "--frame-stack", "2"]) == 0
    assert "Box(2, 2)" in capsys.readouterr().out
    assert main(["check", "proximo:PocMemory", "--env-settings", "max_step=3"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "has no parameter 'max_step' (did you mean 'max_steps'?)" in err


def test_unreadable_images_fail_and_the_suggested_setting_fixes_them(capsys):
    assert main(["check", "broken_envs:SmallImages"]) == 2
    out = capsys.readouterr().out
    assert "✗ policy " in out
    assert "Images of 2×12 are too small for small_cnn: expected at least 3×3; set encoder = mlp." in out
    assert out.splitlines()[-1] == "broken_envs:SmallImages cannot be trained as it is: 1 error."
    assert main(["check", "broken_envs:SmallImages", "--encoder", "mlp"]) == 0
    assert "✓ policy" in capsys.readouterr().out
