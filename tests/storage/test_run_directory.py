"""The run directory: made once, truthful, whole on a full disk, locked, and found by path, name or `last`."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pytest
import yaml

from disks import full_disk
from proximo.config import GROUPS, Config, from_mapping, override
from proximo.errors import CheckpointError, RunDirectoryError
from proximo.storage import run_directory, run_lookup
from proximo.storage.atomic_files import AppendedFile, write_atomic
from proximo.storage.named_folders import find_folder, seed_run_dirs
from proximo.storage.run_directory import locked
from proximo.storage.system_info import system_differences, system_info

CONFIG = override(
    Config(), {"id": "gymnax:CartPole-v1", "hidden_sizes": (32, 16), "learning_rate": "linear(3e-4, 0)", "gamma": 0.9}
)


def fill(folder: Path) -> None:
    (folder / "config.yaml").write_text("")


@pytest.mark.parametrize(
    ("env_id", "folder"),
    [("gymnax:CartPole-v1", "gymnax-CartPole-v1"), ("my_package.module:MyEnv", "my_package.module-MyEnv"), ("../../etc:x y", "-..-etc-x-y")],
)  # fmt: skip
def test_environment_id_becomes_a_safe_folder_name_and_a_taken_run_raises_with_both_fixes(tmp_path, env_id, folder):
    (tmp_path / folder / "a").mkdir(parents=True)  # an empty folder is used
    taken = run_directory.create(tmp_path, env_id, "a", fill)
    assert taken == tmp_path / folder / "a"
    assert (taken / "config.yaml").exists()
    with pytest.raises(RunDirectoryError, match=f"{taken} exists already: continue it with `--resume {taken}`, or .*--name"):
        run_directory.create(tmp_path, env_id, "a", fill)


def test_run_without_a_name_gets_a_unique_time(tmp_path, monkeypatch):
    now = run_directory.datetime(2026, 11, 20, 21, 30, 5)
    monkeypatch.setattr(run_directory, "datetime", mock.Mock(now=lambda *_: now))
    names = [run_directory.create(tmp_path, "E", "", fill).name for _ in range(3)]
    assert names == ["2026-11-20_21-30-05", "2026-11-20_21-30-05-2", "2026-11-20_21-30-05-3"]


def test_run_appears_only_when_it_is_complete(tmp_path):
    def full(folder):
        fill(folder)
        with pytest.raises(CheckpointError, match="There is no run"):  # what a kill at this moment leaves
            run_lookup.find_run("last", tmp_path)
        raise OSError(28, "No space left on device")

    with pytest.raises(RunDirectoryError, match=r"Cannot create .*E/a \(No space left on device\)"):
        run_directory.create(tmp_path, "E", "a", full)
    assert list((tmp_path / "E").iterdir()) == []


def test_saved_config_is_a_valid_equal_config_file(tmp_path):
    run_directory.write_start_files(tmp_path, CONFIG, "proximo train x", {"count": np.int64(3)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["command.txt", "config.yaml", "system.json"]
    assert (tmp_path / "command.txt").read_text() == "proximo train x\n"
    assert json.loads((tmp_path / "system.json").read_bytes())["count"] == 3
    text = (tmp_path / "config.yaml").read_text()
    assert re.match("# .*--config", text)
    assert from_mapping(yaml.safe_load(text), Config(), "x") == CONFIG != Config()
    assert list(yaml.safe_load(text)) == [*GROUPS]
    # A file that a user wrote or changed is read, too.
    settings = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    for written in (text, settings, "env: {id: a:B}\n", text.replace("gamma: 0.9\n", "gamma: 0.5\n")):
        (tmp_path / "config.yaml").write_text(written)
        assert run_directory.read_config(tmp_path) == from_mapping(yaml.safe_load(written), Config(), "x")


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


def test_config_with_the_mark_of_an_earlier_version_is_read(tmp_path):
    text = f"# The last line marks the end of the file.\n{run_directory.render_config(CONFIG)}# end of config.yaml\n"
    (tmp_path / "config.yaml").write_text(text)
    assert run_directory.read_config(tmp_path) == CONFIG


def test_lock_on_a_full_disk_raises_and_leaves_nothing(tmp_path):
    with full_disk(), pytest.raises(RunDirectoryError, match=rf"Cannot write into {tmp_path} \(File too large\)"):
        locked(tmp_path).__enter__()
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == []
    with locked(tmp_path):
        pass


def test_lock_of_another_process_raises_until_it_dies(tmp_path):
    program = (
        "import pathlib, sys, time\nfrom proximo.storage.run_directory import locked\nwith locked(pathlib.Path(sys.argv[1])):"
    )
    command = [sys.executable, "-c", f"{program}\n print('locked', flush=True)\n time.sleep(60)", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RunDirectoryError, match=rf"in use by process {holder.pid} on \S+ \(since 20.*--name"):
            locked(tmp_path).__enter__()
        holder.send_signal(signal.SIGKILL)
    assert json.loads((tmp_path / ".lock.json").read_bytes())["pid"] == holder.pid
    with locked(tmp_path):
        assert json.loads((tmp_path / ".lock.json").read_bytes())["pid"] == os.getpid()
        (tmp_path / ".lock.json").write_text("{torn")
        with pytest.raises(RunDirectoryError, match=r"in use by process \? on \?"):
            locked(tmp_path).__enter__()
    assert not (tmp_path / ".lock.json").exists()
    with locked(tmp_path):
        pass


def test_missing_run_directory_cannot_be_locked(tmp_path):
    with pytest.raises(RunDirectoryError, match=r"Cannot lock .*nowhere: there is no such run directory"):
        locked(tmp_path / "nowhere").__enter__()
    assert not (tmp_path / "nowhere").exists()


DIFFER = "the resumed run may differ in its last bits."


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s["versions"].update(jax="0.0.1"), "jax was 0.0.1 and is"),
        (lambda s: s["versions"].update(brax="0.1"), "brax was 0.1 and is"),
        (lambda s: s.update(cpu_count=999), "the number of CPUs was 999 and is"),
        (lambda s: s.update(device_kind="abacus"), "the device was abacus and is"),
        (lambda s: s["environment"].update(NPROC="77"), "NPROC was 77 and is not set now"),
        (lambda s: s["environment"].update(XLA_FLAGS="--xla_old"), "XLA_FLAGS was --xla_old and is"),
        (lambda s: s.pop("versions"), "{}/system.json is missing or damaged"),
        (lambda s: s["versions"].update(craftax="1"), None),
        (lambda s: s["environment"].update(JAX_COMPILATION_CACHE_DIR="/elsewhere"), None),
    ],
)
def test_each_difference_that_changes_bits_is_reported(tmp_path, monkeypatch, change, sentence):
    monkeypatch.delenv("NPROC", raising=False)
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " ")
    system = system_info()
    assert json.loads(json.dumps(system)) == system
    assert system["versions"]["jax"] == jax.__version__
    assert system["environment"]["XLA_FLAGS"].endswith(" ")
    change(system)
    run_directory.write_start_files(tmp_path, Config(), "", system)
    found = system_differences(tmp_path, "brax")
    assert len(found) == bool(sentence)
    assert all(text.startswith(sentence.format(tmp_path)) and text.endswith(DIFFER) for text in found)
    missing = [f"{tmp_path}/system.json is missing or damaged: {DIFFER}"]
    (tmp_path / "system.json").write_text("{")
    assert system_differences(tmp_path, "brax") == missing
    (tmp_path / "system.json").unlink()
    assert system_differences(tmp_path, "brax") == missing


@pytest.mark.parametrize("operation", ["fsync", "replace", None])
def test_failed_write_keeps_the_old_content(tmp_path, monkeypatch, operation):
    write_atomic(tmp_path / "a", "old")

    if operation is not None:
        monkeypatch.setattr(os, operation, mock.Mock(side_effect=OSError(28, "No space left on device")))
    with contextlib.nullcontext() if operation else full_disk(), pytest.raises(OSError, match=r"No space left|too large"):
        write_atomic(tmp_path / "a", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old"}


def test_records_on_a_full_disk_are_whole_or_lost_and_in_order(tmp_path):
    draw, warnings, written = random.Random(0), [], b""
    file = AppendedFile(tmp_path / "rows", warnings.append)
    for i in range(300):
        record, room = b"%d:%s\n" % (i, b"x" * draw.randrange(9000)), draw.choice([None, draw.randrange(12_000)])
        with full_disk(len(written) + room) if room is not None else contextlib.nullcontext():
            file.append(record)
            file.sync()
        written += record if room is None or room >= len(record) else b""
        assert (tmp_path / "rows").read_bytes() == written
    assert warnings == [f"Cannot write {tmp_path / 'rows'} (File too large): it gets no new rows until it can be written."]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Some ordinary runs and a group of two seeds, which was started last by those with plain names."""
    runs_dir = tmp_path_factory.mktemp("runs")
    for env, name, started in (
        ("gymnax:CartPole-v1", "baseline", "2026-03-01"),
        ("gymnax:CartPole-v1", "wide", "2026-03-03"),
        ("Pong", "baseline", "2026-03-02"),
        ("Pong", "me@home", "2026-03-02"),
        ("Pong/many", "seed-10", "2026-04-10"),
        ("Pong/many", "seed-9", "2026-04-09"),
        ("Pong", "last\x1b[31m", "2027-01-01"),
    ):
        folder = runs_dir / env.replace(":", "-") / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        run_directory.write_start_files(folder, Config(), "proximo train", {"started": started})
    (runs_dir / "Pong" / "many" / "seed-report").mkdir()
    return runs_dir


@pytest.mark.parametrize(
    ("text", "found", "which"),
    [
        ("wide", "gymnax-CartPole-v1/wide", "last"),
        ("wide@best", "gymnax-CartPole-v1/wide", "best"),
        ("wide@last", "gymnax-CartPole-v1/wide", "last"),
        ("wide@1_000", "gymnax-CartPole-v1/wide", 1000),
        ("Pong/baseline@best", "Pong/baseline", "best"),
        ("Pong/many/seed-9", "Pong/many/seed-9", "last"),
        ("many/seed-9", "Pong/many/seed-9", "last"),
        ("many@best", "Pong/many", "best"),
        ("last", "Pong/many", "last"),
        ("last@7", "Pong/many", 7),
        ("{}/Pong/baseline/@12", "Pong/baseline", 12),
        ("{}/Pong/me@home", "Pong/me@home", "last"),
        ("{}/Pong/me@home@best", "Pong/me@home", "best"),
        ("{}/Pong/me@home/checkpoints/12/", "Pong/me@home", 12),
    ],
)
def test_each_form_of_run_is_resolved(runs, text, found, which):
    assert run_lookup.find_run(text.format(runs), runs) == (runs / found, which)
    path = os.path.relpath(runs / found)
    assert run_lookup.find_run(path, Path("nowhere")) == (Path(path), "last")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("baseline", "'baseline' fits 2 runs: Pong/baseline, gymnax-CartPole-v1/baseline"),
        (
            "wid",
            r"No run 'wid': looked for one at that path, and for that name among the 5 runs in {} \(did you mean 'wide'\?\)\. The "
            r"newest \(last\) is Pong/many\.$",
        ),
        ("@best", "No run ''"),
        ("x" * 400, "No run 'x"),
        ("wide@bset", r"expected best, last or a step after @, found 'bset' \(did you mean 'best'\?\)"),
        ("last\x1b[31m", r"last\\x1b\[31m.* contains control characters: rename the folder"),
        ("{}/Pong/last\x1b[31m", r"last\\x1b\[31m.* contains control characters: rename the folder"),
        ("CartPole@best", r"No run 'CartPole': .* The policy that ships with proximo is zoo:CartPole\."),
        ("many", r"many contains several seeds \(seed-9, seed-10\): name one of them, such as {}/Pong/many/seed-9\."),
    ],
)
def test_a_name_that_is_no_single_run_raises(runs, text, sentence):
    with pytest.raises(CheckpointError, match=sentence.replace("{}", str(runs))):
        run_lookup.find_single_run(text.format(runs), runs)


def test_a_run_without_its_start_counts_as_of_the_time_of_its_folder(tmp_path):
    for name, started in (("told", '{"started": "2020-01-01"}'), ("torn", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "system.json").write_text(started)
    assert run_lookup._started(tmp_path / "told") < run_lookup._started(tmp_path / "torn")


def test_a_policy_of_the_zoo_is_not_proposed_where_a_run_is_needed(tmp_path):
    with pytest.raises(CheckpointError) as refused:
        run_lookup.find_run("CartPole", tmp_path, with_zoo=False)
    assert "zoo:" not in str(refused.value)


def test_seed_runs_are_sorted_by_seed_and_those_of_equal_numbers_are_both_found(runs, tmp_path):
    assert [path.name for path in seed_run_dirs(runs / "Pong" / "many")] == ["seed-9", "seed-10"]
    assert seed_run_dirs(runs / "Pong" / "baseline") == []
    for name in ("seed-1", "seed-01"):
        (tmp_path / name).mkdir()
    assert {path.name for path in seed_run_dirs(tmp_path)} == {"seed-1", "seed-01"}


def test_a_name_is_found_without_reading_when_each_run_was_started(runs):
    kind = run_lookup.RUNS._replace(started=lambda path: pytest.fail("read"))
    assert find_folder("wide", runs, kind) == runs / "gymnax-CartPole-v1" / "wide"
