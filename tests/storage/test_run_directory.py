"""The run directory: made once, found by any of its names, locked against a second writer, described truthfully."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import yaml

from disks import full_disk
from proximo.config import Config, from_mapping, override
from proximo.errors import CheckpointError, RunDirectoryError
from proximo.storage import run_directory

SRC = Path(run_directory.__file__).parents[2]
CONFIG = override(
    Config(), {"id": "gymnax:CartPole-v1", "hidden_sizes": (32, 16), "learning_rate": "linear(3e-4, 0)", "gamma": 0.9}
)


def start(runs_dir: Path, env: str, name: str, started: str) -> Path:
    """A run that was started at ``started``."""
    return run_directory.create(
        runs_dir, env, name, lambda folder: run_directory.write_start_files(folder, CONFIG, "proximo train", {"started": started})
    )


def fill(folder: Path) -> None:
    (folder / "config.yaml").write_text("")


@pytest.fixture(scope="module")
def made_runs(tmp_path_factory):
    """Three ordinary runs and a group of two seeds, the group started last."""
    tmp_path = tmp_path_factory.mktemp("made")
    start(tmp_path, "gymnax:CartPole-v1", "baseline", "2026-03-01")
    start(tmp_path, "gymnax:CartPole-v1", "wide", "2026-03-03")
    start(tmp_path, "Pong", "baseline", "2026-03-02")
    for seed in (10, 9):
        start(tmp_path / "Pong", "many", f"seed-{seed}", f"2026-04-{seed:02d}")
    return tmp_path


@pytest.fixture
def runs(made_runs, tmp_path):
    """A copy of them that a test may change."""
    return Path(shutil.copytree(made_runs, tmp_path / "runs"))


@pytest.mark.parametrize(
    ("env_id", "folder"),
    [
        ("gymnax:CartPole-v1", "gymnax-CartPole-v1"),
        ("ALE/Pong-v5", "ALE-Pong-v5"),
        ("my_package.module:MyEnv", "my_package.module-MyEnv"),
        ("../../etc:x y", "-..-etc-x-y"),
    ],
)
def test_environment_id_becomes_a_safe_folder_name(tmp_path, env_id, folder):
    assert run_directory.create(tmp_path, env_id, "a", fill) == tmp_path / folder / "a"
    assert (tmp_path / folder / "a").is_dir()


def test_run_without_a_name_gets_a_unique_time(tmp_path, monkeypatch):
    class Frozen(run_directory.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 11, 20, 21, 30, 5, tzinfo=tz)

    monkeypatch.setattr(run_directory, "datetime", Frozen)
    names = [run_directory.create(tmp_path, "E", "", fill).name for _ in range(3)]
    assert names == ["2026-11-20_21-30-05", "2026-11-20_21-30-05-2", "2026-11-20_21-30-05-3"]


def test_existing_name_raises_with_both_fixes(tmp_path):
    taken = run_directory.create(tmp_path, "E", "a", fill)
    with pytest.raises(RunDirectoryError, match=f"{taken} exists already: continue it with `--resume {taken}`, or .*--name"):
        run_directory.create(tmp_path, "E", "a", fill)


def test_impossible_runs_dir_raises(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match=r"Cannot create .*Not a directory.*--runs-dir"):
        run_directory.create(tmp_path / "file", "E", "a", fill)


def test_kill_during_creation_leaves_no_run(tmp_path):
    code = (
        "import os, pathlib\nfrom proximo.storage import run_directory\n"
        "def fill(folder):\n    (folder / 'config.yaml').write_text('')\n    os.kill(os.getpid(), 9)\n"
        f"run_directory.create(pathlib.Path({str(tmp_path)!r}), 'E', 'a', fill)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with pytest.raises(CheckpointError, match="There is no run"):
        run_directory.resolve("last", tmp_path)
    assert run_directory.create(tmp_path, "E", "a", fill) == tmp_path / "E" / "a"


def test_existing_empty_folder_is_used(tmp_path):
    (tmp_path / "E" / "a").mkdir(parents=True)
    assert (run_directory.create(tmp_path, "E", "a", fill) / "config.yaml").exists()


def test_full_disk_leaves_no_partial_run(tmp_path):
    def full(folder):
        fill(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(RunDirectoryError, match=r"Cannot create .*E/a \(No space left on device\)"):
        run_directory.create(tmp_path, "E", "a", full)
    assert list((tmp_path / "E").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "found", "which"),
    [
        ("wide", "gymnax-CartPole-v1/wide", "last"),
        ("wide@best", "gymnax-CartPole-v1/wide", "best"),
        ("wide@last", "gymnax-CartPole-v1/wide", "last"),
        ("wide@5000", "gymnax-CartPole-v1/wide", 5000),
        ("wide@1_000", "gymnax-CartPole-v1/wide", 1000),
        ("Pong/baseline@best", "Pong/baseline", "best"),
        ("Pong/many/seed-9", "Pong/many/seed-9", "last"),
        ("many@best", "Pong/many", "best"),
        ("last", "Pong/many", "last"),
        ("last@7", "Pong/many", 7),
    ],
)
def test_each_form_of_run_is_resolved(runs, text, found, which):
    assert run_directory.resolve(text, runs) == (runs / found, which)


def test_path_is_resolved_without_runs_dir(runs, monkeypatch):
    monkeypatch.chdir(runs / "Pong")
    assert run_directory.resolve("baseline@best", Path("nowhere")) == (Path("baseline"), "best")
    absolute = str(runs / "Pong" / "baseline")
    assert run_directory.resolve(f"{absolute}/@12", Path("nowhere")) == (Path(absolute), 12)


def test_at_sign_inside_a_path_is_not_a_suffix(runs):
    odd = runs / "Pong" / "me@home"
    (runs / "Pong" / "baseline").rename(odd)
    assert run_directory.resolve(str(odd), runs) == (odd, "last")
    assert run_directory.resolve(f"{odd}@best", runs) == (odd, "best")


def test_last_run_is_the_most_recently_started_one(runs):
    os.utime(runs / "Pong" / "baseline" / "config.yaml", (2e9, 2e9))
    for member in run_directory.seed_run_dirs(runs / "Pong" / "many"):
        (member / "config.yaml").unlink()
        (member / "system.json").unlink()
        os.utime(member, (1, 1))
    assert run_directory.resolve("last", runs)[0] == runs / "gymnax-CartPole-v1" / "wide"


def test_an_ambiguous_name_lists_its_runs(runs):
    with pytest.raises(CheckpointError, match="'baseline' fits 2 runs: Pong/baseline, gymnax-CartPole-v1/baseline"):
        run_directory.resolve("baseline", runs)


def test_unknown_name_raises_with_places_and_nearest_name(runs):
    with pytest.raises(
        CheckpointError,
        match=rf"No run 'wid': .* among the 4 runs in {runs} \(did you mean 'wide'\?\)\. The newest \(last\) is Pong/many\.$",
    ):
        run_directory.resolve("wid", runs)


def test_other_folder_and_empty_name_raise(runs):
    with pytest.raises(CheckpointError, match=r"is a folder without config.yaml"):
        run_directory.resolve(str(runs / "Pong"), runs)
    with pytest.raises(CheckpointError, match="No run ''"):
        run_directory.resolve("@best", runs)


def test_last_without_any_run_raises(tmp_path):
    with pytest.raises(CheckpointError, match=f"There is no run in {tmp_path}"):
        run_directory.resolve("last", tmp_path)


def test_an_unknown_suffix_names_the_known_ones(runs):
    with pytest.raises(CheckpointError, match=r"expected best, last or a step after @, found 'bset' \(did you mean 'best'\?\)"):
        run_directory.resolve("wide@bset", runs)


def test_seed_runs_of_a_group_are_sorted_by_seed(runs):
    group = runs / "Pong" / "many"
    (group / "seed-report").mkdir()
    assert [path.name for path in run_directory.seed_run_dirs(group)] == ["seed-9", "seed-10"]
    assert run_directory.seed_run_dirs(runs / "Pong" / "baseline") == []


def test_saved_config_is_a_valid_equal_config_file(tmp_path):
    run_directory.write_start_files(tmp_path, CONFIG, "proximo train x", {"python": "3"})
    text = (tmp_path / "config.yaml").read_text()
    assert text.startswith("# ")
    assert "--config" in text.splitlines()[0]
    assert from_mapping(yaml.safe_load(text), Config(), "x") == CONFIG
    assert run_directory.read_config(tmp_path) == CONFIG != Config()
    assert list(yaml.safe_load(text)) == [field.name for field in dataclasses.fields(Config)]


def test_start_files_contain_command_and_system(tmp_path):
    run_directory.write_start_files(tmp_path, CONFIG, "proximo train x", {"count": np.int64(3)})
    assert (tmp_path / "command.txt").read_text() == "proximo train x\n"
    assert json.loads((tmp_path / "system.json").read_bytes())["count"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["command.txt", "config.yaml", "system.json"]


def test_folder_name_with_control_characters_raises(runs):
    start(runs, "Pong", "last\x1b[31m", "2027-01-01")
    assert run_directory.resolve("last", runs)[0] == runs / "Pong" / "many"
    for text in ("last\x1b[31m", str(runs / "Pong" / "last\x1b[31m")):
        with pytest.raises(CheckpointError, match=r"last\\x1b\[31m.* contains control characters: rename the folder"):
            run_directory.resolve(text, runs)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "Cannot read .*config.yaml .*is .* a run directory"),
        ("env: [1", "is damaged, it is not valid YAML"),
        ("env: &e {id: x}\nppo: *e", r"is damaged, it is not valid YAML: line 2: aliases \(\*name\) are not supported"),
        ("env: {id: [" + "z" * 10**5 + "]}", r"id = \['z{78}…: expected text"),
        ('env: {id: "x\\e[31m"}', r"id = 'x\\x1b\[31m': expected text without control characters"),
        ("env: {num_envz: 3}", "Unknown setting 'num_envz'.*another version of proximo"),
        ("", "expected groups of settings"),
    ],
)
def test_unreadable_config_raises(tmp_path, content, words):
    if content is not None:
        (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(CheckpointError, match=words):
        run_directory.read_config(tmp_path)


def test_truncated_config_raises_instead_of_using_defaults(tmp_path):
    run_directory.write_start_files(tmp_path, CONFIG, "proximo train x", {})
    whole = (tmp_path / "config.yaml").read_bytes()
    ends = {*range(0, len(whole), 11), *(match.end() for match in re.finditer(b"\n", whole[:-1]))}
    for end in ends:
        (tmp_path / "config.yaml").write_bytes(whole[:end])
        with pytest.raises(CheckpointError, match=r"is damaged: its end is missing|expected groups of settings"):
            run_directory.read_config(tmp_path)


def test_config_that_a_user_wrote_or_changed_is_read(tmp_path):
    text = run_directory.render_config(CONFIG)
    settings = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    for written in (settings, "env: {id: a:B}\n", text.replace("gamma: 0.9\n", "gamma: 0.5\n")):
        (tmp_path / "config.yaml").write_text(written)
        assert run_directory.read_config(tmp_path) == from_mapping(yaml.safe_load(written), Config(), "x")


def test_lock_on_a_full_disk_raises_and_leaves_nothing(tmp_path):
    with full_disk(), pytest.raises(RunDirectoryError, match=rf"Cannot write into {tmp_path} \(File too large\)"):
        run_directory.RunLock(tmp_path).__enter__()
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == []
    with run_directory.RunLock(tmp_path):
        pass


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of ``tmp_path``."""
    program = f"""
        import pathlib, time
        from proximo.storage.run_directory import RunLock
        with RunLock(pathlib.Path({str(tmp_path)!r})):
            print("locked", flush=True)
            time.sleep(60)
    """
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_lock_of_another_process_raises_until_it_dies(tmp_path, holder):
    with pytest.raises(RunDirectoryError, match=rf"in use by process {holder.pid} on \S+ \(since 20.*--name"):
        run_directory.RunLock(tmp_path).__enter__()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert json.loads((tmp_path / ".lock.json").read_bytes())["pid"] == holder.pid
    with run_directory.RunLock(tmp_path):
        assert json.loads((tmp_path / ".lock.json").read_bytes())["pid"] == os.getpid()


def test_only_a_released_lock_can_be_acquired_again(tmp_path):
    with run_directory.RunLock(tmp_path):
        (tmp_path / ".lock.json").write_text("{torn")
        with pytest.raises(RunDirectoryError, match="in use by another process"):
            run_directory.RunLock(tmp_path).__enter__()
    assert not (tmp_path / ".lock.json").exists()
    with run_directory.RunLock(tmp_path):
        assert (tmp_path / ".lock.json").exists()


def test_missing_run_directory_cannot_be_locked(tmp_path):
    with pytest.raises(RunDirectoryError, match=r"Cannot lock .*nowhere: there is no such run directory"):
        run_directory.RunLock(tmp_path / "nowhere").__enter__()
    assert not (tmp_path / "nowhere").exists()
