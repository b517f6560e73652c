"""A run is found by its path, its name or `last`; mistakes are answered with the nearest name."""

import os
from pathlib import Path

import pytest

from proximo.config import Config
from proximo.errors import CheckpointError
from proximo.storage import run_directory, run_lookup
from proximo.storage.named_folders import find_folder, seed_run_dirs


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
