"""The pages of the suites are up to date with the suites and their results."""

import json
from pathlib import Path

import suite_pages
from proximo.cli.eval import make_parser

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_pages_are_up_to_date():
    pages = suite_pages.pages()
    assert {path.name for path in suite_pages.PAGES.glob("*.md")} == {path.name for path in pages}
    for path, text in pages.items():
        assert path.read_text() == text, "run python benchmarks/suite_pages.py"


def test_pages_have_notes_other_settings_and_earlier_trainings():
    page = (suite_pages.PAGES / "mujoco.md").read_text()
    assert suite_pages.load_suite(BENCHMARKS / "suites" / "mujoco.yaml").notes in page
    assert "| `HalfCheetah-v5, higher rate` | 999,424 | 3118 |" in page
    assert "| `Hopper-v5` | 2026-11-24 … 2026-11-25 | `num_envs: 1`, `stagger_steps: 0`" in page
    trainings = json.loads((BENCHMARKS / "results" / "earlier_seeds.json").read_text())["trainings"]
    assert all("## Earlier trainings" in (suite_pages.PAGES / f"{one['suite']}.md").read_text() for one in trainings)


def test_evaluation_of_a_page_is_that_of_the_suite():
    cases = {
        "--greedy --episodes 100 --seed 1000000": suite_pages.Task("toys:Env"),
        "--stochastic --episodes 7 --seed 1000000": suite_pages.Task("toys:Env", policy="sampled", episodes=7),
        "--greedy --episodes 100 --seed 1000000 --env-settings levels=held_out,view=3": suite_pages.Task(
            "toys:Env", unseen={"levels": "held_out", "view": 3}
        ),
    }
    for flags, task in cases.items():
        assert suite_pages._evaluation(task, 0) == f"`proximo eval last {flags}`"
        make_parser().parse_args(["last", *flags.split()])


def page(task, rows):
    results = {"tasks": {"toys:Env": {"steps": 10, "seeds": rows}}}
    return suite_pages.page("toys", suite_pages.Suite("Toys", "Two toys.", {}, {"toys:Env": task}), results)


def test_page_lists_command_time_and_memory_of_a_seed_and_explains_marks():
    task = suite_pages.Task("toys:Env", {"total_steps": 10, "learning_rate": "linear(1, 0)"}, seeds=3)
    used = {"peak_memory_mb": 300, "device": "cpu", "cores": 1}
    rows = {str(seed): {"score": 1.0, "last_100": None, "wall_seconds": 60.0 * seed, **used} for seed in (1, 3)}
    text = page(task, rows)
    assert "2 of 3 seeds are trained." in text
    command = "proximo train toys:Env --total-steps 10 --learning-rate 'linear(1, 0)' --seed 1"
    assert f"| toys:Env | `{command}` | 10 | 2.0 (1.0 … 3.0) | 1 core | 300 |" in text
    assert "Collapsed |\n" in text
    assert "**mark**" not in text
    rows["3"]["device"] = "NVIDIA H200"
    assert "| 2.0 (1.0 … 3.0) | NVIDIA H200 | 300 |" in page(task, rows)
    for criteria in ({"mark": 2.0}, {"aim": 2.0}):
        text = page(suite_pages.Task("toys:Env", seeds=1, **criteria), {"0": {"score": 1.0, "last_100": None}})
        assert all(part in text for part in ("Collapsed | Mark | Aim | Reached |", "A **mark** is", "**missed** |"))


def test_command_has_the_settings_as_a_user_writes_them():
    task = suite_pages.Task("toys:Env", {"hidden_sizes": [64, 64], "normalize_reward": False, "gamma": 1.0}, preset=False)
    expected = "proximo train toys:Env --no-preset --hidden-sizes 64,64 --normalize-reward false --gamma 1"
    assert suite_pages.command(task, 0) == expected
    assert suite_pages.command(task, 20) == f"{expected} --seed 20"
