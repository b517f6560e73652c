"""A run is found by its path, its name or `last`; mistakes are answered with the nearest name."""

import shutil
from pathlib import Path

import pytest

from proximo.config import Config, override
from proximo.errors import CheckpointError
from proximo.storage import run_directory, run_lookup
from proximo.storage.named_folders import seed_run_dirs

SRC = Path(run_directory.__file__).parents[2]
CONFIG = override(
    Config(), {"id": "gymnax:CartPole-v1", "hidden_sizes": (32, 16), "learning_rate": "linear(3e-4, 0)", "gamma": 0.9}
)


def start(runs_dir: Path, env: str, name: str, started: str) -> Path:
    """A run that was started at ``started``."""
    return run_directory.create(
        runs_dir, env, name, lambda folder: run_directory.write_start_files(folder, CONFIG, "proximo train", {"started": started})
    )


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
    assert run_lookup.find_run(text, runs) == (runs / found, which)


def test_path_is_resolved_without_runs_dir(runs, monkeypatch):
    monkeypatch.chdir(runs / "Pong")
    assert run_lookup.find_run("baseline@best", Path("nowhere")) == (Path("baseline"), "best")
    absolute = str(runs / "Pong" / "baseline")
    assert run_lookup.find_run(f"{absolute}/@12", Path("nowhere")) == (Path(absolute), 12)


def test_at_sign_inside_a_path_is_not_a_suffix(runs):
    odd = runs / "Pong" / "me@home"
    (runs / "Pong" / "baseline").rename(odd)
    assert run_lookup.find_run(str(odd), runs) == (odd, "last")
    assert run_lookup.find_run(f"{odd}@best", runs) == (odd, "best")
    assert run_lookup.find_run(f"{odd}/checkpoints/12/", runs) == (odd, 12), "the folder of a checkpoint"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("baseline", "'baseline' fits 2 runs: Pong/baseline, gymnax-CartPole-v1/baseline"),
        (
            "wid",
            r"No run 'wid': looked for one at that path, and for that name among the 4 runs in {} \(did you mean 'wide'\?\)\. The "
            r"newest \(last\) is Pong/many\.$",
        ),
        ("@best", "No run ''"),
        ("x" * 400, "No run 'x"),
        ("wide@bset", r"expected best, last or a step after @, found 'bset' \(did you mean 'best'\?\)"),
    ],
)
def test_unknown_run_raises_with_the_nearest_name(runs, text, sentence):
    with pytest.raises(CheckpointError, match=sentence.replace("{}", str(runs))):
        run_lookup.find_run(text, runs)


def test_seed_runs_of_a_group_are_sorted_by_seed(runs):
    group = runs / "Pong" / "many"
    (group / "seed-report").mkdir()
    assert [path.name for path in seed_run_dirs(group)] == ["seed-9", "seed-10"]
    assert seed_run_dirs(runs / "Pong" / "baseline") == []


def test_folder_name_with_control_characters_raises(runs):
    start(runs, "Pong", "last\x1b[31m", "2027-01-01")
    assert run_lookup.find_run("last", runs)[0] == runs / "Pong" / "many"
    for text in ("last\x1b[31m", str(runs / "Pong" / "last\x1b[31m")):
        with pytest.raises(CheckpointError, match=r"last\\x1b\[31m.* contains control characters: rename the folder"):
            run_lookup.find_run(text, runs)


def test_a_name_of_the_zoo_without_its_prefix_is_explained(tmp_path):
    with pytest.raises(CheckpointError, match=r"No run 'CartPole': .* The policy that ships with proximo is zoo:CartPole\."):
        run_lookup.find_run("CartPole@best", tmp_path)
    with pytest.raises(CheckpointError) as refused:
        run_lookup.find_run("CartPole", tmp_path, with_zoo=False)
    assert "zoo:" not in str(refused.value)
