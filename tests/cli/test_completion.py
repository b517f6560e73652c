"""Completion: what is offered follows from the verbs' parsers, at once, and a real shell takes it."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from proximo.cli import VERBS, candidates, main
from proximo.cli.candidates import FILES, split
from proximo.config import LEAVES


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with two runs, a group, and something that is no run; and no list of environments yet."""
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


def offered(*words):
    return [word for word, _ in candidates.candidates(list(words[:-1]), words[-1])]


def test_every_verb_tells_its_flags_by_its_parser():
    assert offered("") == list(VERBS)
    assert offered("e") == [verb for verb in VERBS if verb.startswith("e")]
    for verb in VERBS:
        assert "--help" in offered(verb, "--"), f"proximo.cli.{verb} has no make_parser()"


def test_every_setting_is_a_flag_and_its_choices_are_values():
    flags = offered("train", "--")
    assert {f"--{name.replace('_', '-')}" for name in LEAVES if name != "id"} <= set(flags)
    assert offered("train", "CartPole-v1", "--memory", "g") == ["gru", "gtrxl"]
    assert offered("train", "--memory=l") == ["--memory=lstm", "--memory=lru"]
    assert offered("train", "--overlap", "") == ["true", "false"]
    assert "--no-tensorboard" in offered("train", "--no-t")
    assert "--no-tensorboard" not in flags
    assert not [flag for flag in flags if "_" in flag]


def test_a_flag_without_values_of_its_own_offers_nothing():
    assert offered("train", "--num-envs", "") == []
    assert offered("train", "--frobnicate", "") != []  # what is unknown is no flag that waits


def test_environments_are_offered_and_those_that_were_listed(place):
    assert "CartPole-v1" in offered("train", "Cart")
    assert "gymnax:CartPole-v1" in offered("train", "--smoke", "gymnax:Cart")
    assert offered("train", "Rare") == []
    candidates.remember(["Rare-v3", "CartPole-v1"])
    assert offered("train", "Rare") == ["Rare-v3"]
    assert offered("train", "--overlap", "true", "Rare") == offered("train", "--overlap", "--quiet", "Rare") == ["Rare-v3"]
    assert offered("train", "Rare-v3", "C") == []  # there is only one environment


def test_runs_are_offered_by_the_names_that_verbs_take(place):
    assert offered("eval", "")[0] == "last"
    assert set(offered("eval", "")) == {"last", "first", "several", "CartPole-v1/second", "Pendulum-v1/second"}
    assert offered("eval", "fi") == ["first"]
    assert offered("eval", "runs/P") == ["runs/Pendulum-v1/second"]
    assert offered("train", "--resume", "sev") == ["several"]
    assert offered("eval", "--runs-dir", "elsewhere", "") == []
    assert offered("eval", "zz") == [FILES]


def test_studies_are_offered_where_one_goes_on(place):
    assert offered("tune", "--resume", "") == []
    for name in ("CartPole-v1/wide", "Pendulum-v1/wide", "Pendulum-v1/long"):
        (place / "tune" / name).mkdir(parents=True)
        (place / "tune" / name / "study.yaml").write_text("")
    (place / "tune" / "CartPole-v1" / "nothing").mkdir()
    assert set(offered("tune", "--resume", "")) == {"last", "long", "CartPole-v1/wide", "Pendulum-v1/wide"}
    assert offered("tune", "--resume", "lo") == ["long"]
    assert offered("tune", "--resume=la") == ["--resume=last"]
    assert set(offered("tune", "--resume", "tune/P")) == {"tune/Pendulum-v1/long", "tune/Pendulum-v1/wide"}
    assert offered("tune", "--tune-dir", "elsewhere", "--resume", "") == []


def test_behind_an_at_stand_the_checkpoints(place):
    assert offered("eval", "first@") == ["first@best", "first@last", "first@1280", "first@320"]
    assert offered("eval", "CartPole-v1/first@1") == ["CartPole-v1/first@1280"]


def test_files_are_left_to_the_shell(place):
    assert offered("train", "--config", "") == [FILES]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("proximo ", ["proximo", ""]),
        ("proximo tr", ["proximo", "tr"]),
        ("proximo train gymnax:C", ["proximo", "train", "gymnax:C"]),
        ("proximo train --config 'my fil", ["proximo", "train", "--config", "my fil"]),
        ('proximo eval "a b" ', ["proximo", "eval", "a b", ""]),
    ],
)
def test_a_line_that_is_being_typed_is_split(line, words):
    assert split(line) == words


def test_nothing_slow_is_imported():
    slow = ("jax", "numpy", "gymnasium", "rich", "proximo.run")
    program = (
        "import sys\nfrom proximo.cli import main\n"
        "main(['__complete', 'zsh', 'train', 'C'])\nmain(['__complete', 'zsh', 'eval', ''])\n"
        f"sys.exit(str([name for name in {slow} if name in sys.modules] or ''))"
    )
    started = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stderr == "\n" or not ended.stderr, ended.stderr
    assert "CartPole-v1" in ended.stdout
    assert time.monotonic() - started < 5


def shell_script(place, shell):
    """The script in a file, and a ``proximo`` that this process's Python runs."""
    program = place / "bin" / "proximo"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom proximo.cli import main\nsys.exit(main())\n")
    program.chmod(0o755)
    ended = subprocess.run([program, "completion", shell], capture_output=True, text=True, check=True)
    (place / f"completion.{shell}").write_text(ended.stdout)
    return place / f"completion.{shell}"


def in_shell(place, *command):
    environment = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "HOME": str(place), "TERM": "dumb"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(command, capture_output=True, text=True, cwd=place, env=environment, check=False, timeout=60)


BASH = """
source completion.bash
complete -p proximo
press() {
    COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9 COMP_KEY=9
    COMP_WORDS=($2) COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    [[ $1 == *" " ]] && { COMP_WORDS+=(""); COMP_CWORD=${#COMP_WORDS[@]}-1; }
    _proximo
    printf '%s|' "${COMPREPLY[@]}"; echo
}
press "proximo ev" "proximo ev"
press "proximo train gymnax:Acro" "proximo train gymnax : Acro"
press "proximo train --memory=gr" "proximo train --memory = gr"
press "proximo eval first@b" "proximo eval first @b"
press "proximo eval " "proximo eval"
press "proximo train --config completion.b" "proximo train --config completion.b"
"""


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_is_given_what_stands_behind_the_breaks_of_its_words(place):
    shell_script(place, "bash")
    (place / "press.sh").write_text(BASH)
    ended = in_shell(place, "bash", "--norc", "press.sh")
    assert ended.stderr == ""
    registered, *replies = ended.stdout.splitlines()
    assert registered == "complete -o nosort -F _proximo proximo"
    verb, acrobot, gru, best, runs, files = [[word for word in reply.split("|") if word] for reply in replies]
    assert verb == ["eval"]
    assert acrobot == ["Acrobot-v1"]
    assert gru == ["gru"]
    assert best == ["@best"]
    assert {"last", "first", "several"} <= set(runs)
    assert files == ["completion.bash"]


@pytest.mark.skipif(not shutil.which("zsh"), reason="there is no zsh")
def test_zsh_reads_the_script(place):
    script = shell_script(place, "zsh")
    ended = in_shell(place, "zsh", "-fc", f"autoload -U compinit && compinit -u && source {script} && print $_comps[proximo]")
    assert ended.stdout.strip() == "_proximo", ended.stderr


@pytest.mark.skipif(not shutil.which("fish"), reason="there is no fish")
def test_fish_completes_by_the_script(place):
    script = shell_script(place, "fish")
    ended = in_shell(place, "fish", "--no-config", "-c", f"source {script}; complete -C 'proximo train --memory gr'")
    assert ended.stdout.split() == ["gru"], ended.stderr


def test_a_shell_that_is_unknown_is_a_mistake(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "choose from" in capsys.readouterr().err
