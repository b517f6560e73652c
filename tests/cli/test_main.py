"""The command line as a whole: help, exit codes, one sentence for a mistake."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from commands import TESTS
from proximo import cli
from proximo.cli import main
from proximo.errors import TrainingError
from proximo.rendering.window import mujoco_draws

SCRIPT = Path(sys.executable).with_name("proximo")


def in_folder(folder, *words):
    """The process of a command, when it has ended."""
    return subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=500)


@pytest.mark.parametrize("verb", [None, *cli.VERBS])
def test_every_command_has_a_help_that_fits_a_screen(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        main([*([verb] if verb else []), "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert end.value.code == 0
    assert lines[0].startswith(f"usage: proximo {verb or 'COMMAND'}")
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    if verb is None:
        assert all(any(line.startswith(f"  {verb} ") for line in lines) for verb in cli.VERBS)
        assert main([]) == 0
        assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (TrainingError("NaN in the loss"), 1, "NaN in the loss"),
        (KeyboardInterrupt(), 130, "interrupted."),
        (MemoryError(), 2, "Out of memory (MemoryError): lower num_envs, num_steps or the sizes of the network."),
        (RuntimeError("RESOURCE_EXHAUSTED: 16 bytes.\nmore"), 2, "Out of memory (RESOURCE_EXHAUSTED: 16 bytes.): lower num_envs"),
        (ZeroDivisionError("division by zero"), None, "ZeroDivisionError: division by zero"),
    ],
)
def test_each_error_has_its_exit_code_and_a_bug_its_traceback(error, code, sentence, monkeypatch, capsys):
    def fail(arguments):
        raise error

    monkeypatch.setattr("proximo.cli.envs.run", fail)
    with pytest.raises(ZeroDivisionError) if code is None else contextlib.nullcontext():
        assert main(["envs", "--json"]) == code
    out, err = capsys.readouterr()
    assert json.loads(out)["error"].startswith(sentence)
    assert (f"proximo: {sentence}" in err) == (code is not None)


@pytest.mark.parametrize(("environment", "colored"), [("", False), ("FORCE_COLOR", True), ("FORCE_COLOR NO_COLOR", False)])
def test_error_message_is_colored_only_if_requested(environment, colored, monkeypatch, capsys):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.setenv(name, "1" if name in environment else "")
    assert main(["trian"]) == 2
    assert capsys.readouterr().err.startswith("\x1b[31mproximo:\x1b[0m Unknown" if colored else "proximo: Unknown")


def test_completion_help_and_mistakes_do_not_wait_for_slow_libraries():
    program = """if True:
        import contextlib, sys
        from proximo.cli import VERBS, main
        main(["__complete", "environments", "C"])
        main(["__complete", "runs", ""])
        slow = {"jax", "numpy", "gymnasium", "rich", "shtab", "proximo.training"} & set(sys.modules)
        for verb in VERBS:
            with contextlib.suppress(SystemExit):
                main([verb, "--help"])
        main(["train", "x", "--gama", "1"])
        sys.exit("jax" in sys.modules or bool(slow))"""
    ended = in_folder(Path.cwd(), sys.executable, "-c", program)
    assert (ended.returncode, ended.stderr) == (0, "proximo: Unknown setting 'gama' (did you mean 'gamma'?).\n")
    assert "CartPole-v1" in ended.stdout


def in_disguise(folder):
    """Write modules with the names of libraries into ``folder``. Each writes a file when it is imported."""
    for name in ("json", "types", "enum", "csv", "numpy", "yaml", "proximo", "mujoco"):
        (folder / f"{name}.py").write_text("open(__file__ + '.ran', 'w').close()")


def test_console_script_imports_environments_but_no_libraries_from_working_folder(tmp_path):
    (tmp_path / "mine.py").write_text((TESTS / "toys.py").read_text())
    in_disguise(tmp_path)
    small = ["--smoke", "--json", "--no-tensorboard", "--num-envs", "4", "--num-steps", "8"]
    ended = in_folder(tmp_path, SCRIPT, "train", "mine:RandomEnds", *small)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["run_dir"] in [str(path) for path in tmp_path.glob("runs/mine-RandomEnds/*")]
    assert list(tmp_path.glob("*.ran")) == []


def test_started_processes_import_no_library_from_the_working_folder(tmp_path, monkeypatch, capfd):
    """tests/envs/gymnasium/test_workers.py starts a worker in this way, tests/collect/test_ray_actors.py an actor."""
    in_disguise(tmp_path)
    monkeypatch.chdir(tmp_path)
    # `main` appends the working folder, where later tests would find these modules.
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["launch", "-n", "1", "--", "train", "mine:Nothing"]) == 2
    assert "[0] proximo: " in capfd.readouterr().err
    mujoco_draws("egl")
    assert list(tmp_path.glob("*.ran")) == []


def test_a_crash_in_native_code_shows_its_line_and_no_json_of_the_working_folder_is_imported(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('json.py of the working folder')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), *filter(None, sys.path)]))
    ended = in_folder(tmp_path, sys.executable, "-m", "proximo", "check", "broken_envs:Crashes")
    assert "json.py of the working folder" not in ended.stderr
    assert re.search(r'Segmentation fault\n(.*\n)*  File ".*broken_envs.py", line \d+ in reset', ended.stderr)


@pytest.mark.parametrize(
    ("redirection", "code", "out", "error"),
    [
        ("envs | head -1; exit ${PIPESTATUS[0]}", 0, "gymnasium\n", ""),
        ("completion fish > /dev/full", 2, "", "proximo: Cannot write the output or a file (No space left on device).\n"),
        (">&- 2>&-", 0, "", ""),
        ("envs --json >&-", 0, "", ""),
        ("check CartPole-v1 --json >&- 2>&-", 0, "", ""),  # in a process of its own
    ],
)
def test_output_that_cannot_be_written_is_no_traceback(redirection, code, out, error):
    ended = in_folder(Path.cwd(), "bash", "-c", f"{SCRIPT} {redirection}")
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, out, error)


def test_characters_that_an_encoding_lacks_are_replaced(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    cli._prepare_streams()
    print("1 → ±2", flush=True)
    assert sys.stdout.buffer.getvalue() == "1 ? ±2\n".encode("latin-1")


def test_a_deleted_working_folder_is_one_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["envs"]) == 2
    assert capsys.readouterr().err == "proximo: The working folder does not exist any more: change to another one.\n"


def test_ctrl_c_during_the_jax_import_exits_silently_at_once(tmp_path):
    code = f"""
import builtins, os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
real = builtins.__import__
def interrupted(name, *arguments, **options):
    if name == "jax":
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *arguments, **options)
builtins.__import__ = interrupted
from proximo.cli import main
main(["train", "gymnax:CartPole-v1", "--runs-dir", {str(tmp_path)!r}])
"""
    done = in_folder(tmp_path, sys.executable, "-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.slow
def test_commands_import_no_library_from_the_working_folder(tmp_path):
    (tmp_path / "mine.py").write_text((TESTS / "gym_toys.py").read_text())
    in_disguise(tmp_path)
    small = "--num-envs 2 --num-steps 8 --num-minibatches 1 --total-steps 32 --eval-episodes 2 --num-workers 1 --hidden-sizes 8"
    run = "runs/mine-DrawnWalk/a"
    verbs = f"""envs gymnasium
        check mine:DrawnWalk
        train mine:DrawnWalk {small} --name a
        eval {run} --episodes 2 --json
        watch {run} --episodes 1 --out clip.mp4
        report {run}
        export {run} --out exported
        push {run} published --episodes 2
        pull published --name b --trust-code
        eval runs/mine-DrawnWalk/b --episodes 2
        tune mine:DrawnWalk {small} --trials 1"""
    program = """if True:
        import sys
        from proximo.cli import main
        for line in sys.argv[1].splitlines():
            assert main(line.split()) == 0, line"""
    ended = in_folder(tmp_path, sys.executable, "-P", "-c", program, verbs)
    assert ended.returncode == 0, ended.stderr
    assert list(tmp_path.glob("*.ran")) == []
