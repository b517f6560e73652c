"""Completion: each shell completes verbs, flags and choices from its script, and names that proximo lists without delay."""

import os
import shutil
import subprocess
import sys

import pytest

from proximo.cli import VERBS, main
from proximo.cli.completion import known_names, remember_environments
from proximo.config import LEAVES


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with three runs, a group and a folder that is not a run; no list of environments exists yet."""
    for name in ("CartPole-v1/first", "CartPole-v1/second", "Pendulum-v1/second"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").write_text("")
    (tmp_path / "runs" / "CartPole-v1" / "several" / "seed-0").mkdir(parents=True)
    (tmp_path / "runs" / "CartPole-v1" / "nothing").mkdir()
    for step in (320, 1280):
        (tmp_path / "runs" / "CartPole-v1" / "first" / "checkpoints" / str(step)).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROXIMO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def test_every_command_and_flag_is_in_each_script(capsys):
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert not [verb for verb in VERBS if verb not in script]
        flags = [name.replace("_", "-") for name in LEAVES if name != "id"]
        assert not [flag for flag in flags if f"--{flag}" not in script and f"-l {flag}" not in script]


def test_previously_listed_environments_are_completed(place):
    assert {"CartPole-v1", "gymnax:CartPole-v1"} <= set(known_names("environments"))
    assert "Rare-v3" not in known_names("environments")
    remember_environments(["Rare-v3", "CartPole-v1"])
    assert "Rare-v3" in known_names("environments")


def test_completed_run_names_are_accepted_by_commands(place, capsys):
    assert known_names("runs")[0] == "last"
    assert set(known_names("runs")) == {"last", "first", "several", "CartPole-v1/second", "Pendulum-v1/second"}
    assert {"first", "CartPole-v1/first", "runs/CartPole-v1/first"} <= set(known_names("runs", "f"))
    assert "nothing" not in known_names("runs", "n")
    assert known_names("runs", "first@") == ["first@best", "first@last", "first@1280", "first@320"]
    assert "CartPole-v1/first@1280" in known_names("runs", "CartPole-v1/first@1")
    (place / "runs" / "CartPole-v1" / "a b").mkdir()
    (place / "runs" / "CartPole-v1" / "a b" / "config.yaml").write_text("")
    assert "a b" in known_names("runs")
    assert main(["__complete", "runs"]) == 0
    assert "a b" not in capsys.readouterr().out.splitlines(), "a shell must quote it"


def test_completed_study_names_are_accepted_by_resume(place):
    assert known_names("studies") == []
    for name in ("CartPole-v1/wide", "Pendulum-v1/wide", "Pendulum-v1/long"):
        (place / "tune" / name).mkdir(parents=True)
        (place / "tune" / name / "journal.log").write_text("")
    (place / "tune" / "CartPole-v1" / "nothing").mkdir()
    assert set(known_names("studies")) == {"last", "long", "CartPole-v1/wide", "Pendulum-v1/wide"}
    assert {"tune/Pendulum-v1/long", "tune/Pendulum-v1/wide"} <= set(known_names("studies", "tune/P"))


BASH = """
source completion.bash
complete -p proximo
press() {
    COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9 COMP_KEY=9
    COMP_WORDS=($2) COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    [[ $1 == *" " ]] && { COMP_WORDS+=(""); COMP_CWORD=$(( COMP_CWORD + 1 )); }
    _proximo
    printf '%s|' "${COMPREPLY[@]}"; echo
}
press "proximo ev" "proximo ev"
press "proximo train gymnax:Acro" "proximo train gymnax : Acro"
press "proximo train --memory=gr" "proximo train --memory = gr"
press "proximo eval first@b" "proximo eval first @b"
press "proximo train --config completion.b" "proximo train --config completion.b"
press "proximo train --total" "proximo train --total"
press "proximo eval " "proximo eval"
"""


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_completes_from_the_last_word_break(place):
    program = place / "bin" / "proximo"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom proximo.cli import main\nsys.exit(main())\n")
    program.chmod(0o755)
    script = subprocess.run([program, "completion", "bash"], capture_output=True, text=True, check=True)
    (place / "completion.bash").write_text(script.stdout)
    (place / "press.sh").write_text(BASH)
    environment = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "HOME": str(place), "TERM": "dumb"}
    environment = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = ["bash", "--norc", "press.sh"]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=place, env=environment, check=False, timeout=60)
    assert ended.stderr == ""
    registered, *replies = ended.stdout.splitlines()
    assert registered == "complete -o bashdefault -F _proximo proximo"
    *replies, runs = [[word for word in reply.split("|") if word] for reply in replies]
    flags = ["--total-steps", "--total-updates"]
    assert replies == [["eval"], ["Acrobot-v1"], ["gru"], ["@best"], ["completion.bash"], flags]
    assert {"last", "first", "several"} <= set(runs)
