"""Write one documentation page for each suite: how to reproduce it, what it takes, and its results beside published ones.

    python benchmarks/suite_pages.py

``suite.py`` does the same when it ends. Writes docs/suites/NAME.md for each file in benchmarks/suites with an
entry ``about``. The page also has the results of the suites NAME_…, which try other settings, and the seeds
in results/earlier_seeds.json, which were trained before the present ones.
"""

from __future__ import annotations

import json
import shlex
import statistics
from pathlib import Path
from typing import Any

from proximo.config import text_of
from suite_report import number, table
from suite_tasks import EVALUATION_SEEDS, Suite, Task, load_suite, read_results

HERE = Path(__file__).parent
PAGES = HERE.parent / "docs" / "suites"


def pages() -> dict[Path, str]:
    """The text of each page by its path."""
    found = {path.stem: load_suite(path) for path in sorted((HERE / "suites").glob("*.yaml"))}
    return {
        PAGES / f"{name}.md": page(name, suite, read_results(HERE / "results" / f"suite_{name}.json"))
        for name, suite in found.items()
        if suite.about
    }


def page(name: str, suite: Suite, results: dict[str, Any]) -> str:
    """The page of a suite, in Markdown."""
    trained = sum(
        min(len(results["tasks"].get(task_name, {"seeds": ()})["seeds"]), task.seeds) for task_name, task in suite.tasks.items()
    )
    wanted = sum(task.seeds for task in suite.tasks.values())
    picture = HERE / "results" / f"suite_{name}.png"
    parts = [
        f"# {suite.title}",
        suite.about,
        f"{trained} of {wanted} seeds are trained." if trained < wanted else f"All {wanted} seeds are trained.",
        "## Train one task",
        "Each command trains one seed; `--seed` chooses it. Minutes are the median over the trained seeds with the range, on machines that also did other work; memory is the "
        "median. No evaluation ran during these trainings, and most programs came from the compilation cache. A first training takes longer and needs more memory. "
        "`–`: not trained or not recorded. "
        f"The last column is the command that evaluates the final policy as the suite does; run it right after the training. For seed n of the training, its `--seed` is {EVALUATION_SEEDS} + n.",
        "\n".join(_commands(suite, results)),
        "## Reproduce the results",
        f"    python benchmarks/suite.py {name} --minutes 140 --jobs 2 --out my_{name}.json\n    python benchmarks/suite.py {name} --show --out my_{name}.json",
        "The first command trains two seeds at a time and skips seeds that have results in the file. After 140 minutes it saves the running seeds; run it "
        f"again to continue. The second command prints the table of results and draws the learning curves into `my_{name}.png`. The score of one seed "
        "depends on the processor and the number of cores; expect a score in the range of the recorded seeds.",
    ]
    if trained:
        parts += [
            "## Results",
            _criteria(suite)
            + "**Collapsed** counts the seeds with a score more than 50 % below the median over seeds (50 % of its absolute value). The range in "
            "parentheses after the mean is its 95 % bootstrap interval.",
            table(suite, results),
        ]
    if picture.is_file():
        parts.append(f"![Learning curves of each task](../../benchmarks/results/{picture.name})")
    if suite.notes:
        parts += ["## Notes", suite.notes]
    return "\n\n".join([*parts, *_other_settings(name), *_earlier_seeds(name)]) + "\n"


def _other_settings(name: str) -> list[str]:
    """The tables of the suites that compare other settings with those of the suite ``name``."""
    parts = []
    for path in sorted((HERE / "suites").glob(f"{name}_*.yaml")):
        suite, results = load_suite(path), read_results(HERE / "results" / f"suite_{path.stem}.json")
        parts += [
            f"## {suite.title}",
            f"`benchmarks/suites/{path.name}` has the settings of each row.",
            table(suite, results).strip(),
        ]
    return parts


def _earlier_seeds(name: str) -> list[str]:
    """The seeds of a suite that were trained with another preset or another version."""
    trainings = json.loads((HERE / "results" / "earlier_seeds.json").read_text())["trainings"]
    lines = ["| Task | Date | Settings that differ from today's | Steps | Final policy of every seed |", "|---|---|---|---|---|"]
    for training in (training for training in trainings if training["suite"] == name):
        seeds = [training["seeds"][seed] for seed in sorted(training["seeds"], key=int)]
        settings = ", ".join(f"`{key}: {value}`" for key, value in training["settings"].items()) or "none: an earlier version"
        days = sorted({seed["date"] for seed in seeds})
        cells = [f"`{training['task']}`", " … ".join(dict.fromkeys((days[0], days[-1]))), settings, f"{training['steps']:,}"]
        lines.append(f"| {' | '.join(cells)} | {' '.join(number(seed['score']) for seed in seeds)} |")
    about = "These seeds were trained before the present ones, and then again with a new preset or version; a row with fewer seeds was stopped."
    return ["## Earlier trainings", about, "\n".join(lines)] if len(lines) > 2 else []


def _criteria(suite: Suite) -> str:
    """What a mark and an aim are, and which score is compared with them. Empty if no task has one."""
    if not any(task.has_criteria for task in suite.tasks.values()):
        return ""
    scores = {"mean": "the mean over seeds", "worst": "the worst seed"}
    usual, *other = sorted(scores, key=lambda score: -sum(task.judged_by == score for task in suite.tasks.values()))
    exceptions = [name for name, task in suite.tasks.items() if task.judged_by in other]
    judged = scores[usual] + (f" (of {', '.join(exceptions)}: {scores[other[0]]})" if exceptions else "")
    return (
        "A **mark** is the score that proximo must reach, an **aim** a stricter one; not every task has them. **Reached** compares them with "
        f"{judged}. A score `by N` also requires a training of at most N steps. `so far`: not all seeds are trained. "
    )


def _machine(rows: list[dict[str, Any]]) -> str:
    """What the seeds of a task were trained on."""
    devices = {row["device"] for row in rows if row.get("device", "cpu") != "cpu"}
    numbers = sorted({row["cores"] for row in rows if "cores" in row})
    cores = [" or ".join(map(str, numbers)) + (" core" if numbers == [1] else " cores")] if numbers and not devices else []
    return ", ".join([*sorted(devices), *cores]) or "–"


def _commands(suite: Suite, results: dict[str, Any]) -> list[str]:
    lines = ["| Task | Command | Steps | Minutes | On | Peak memory, MB | Evaluate |", "|---|---|---|---|---|---|---|"]
    for name, task in suite.tasks.items():
        record = results["tasks"].get(name)
        rows, seed = list(record["seeds"].values()) if record else [], first_seed(task, record)
        minutes, memory = _minutes(rows), _median(rows, "peak_memory_mb")
        steps = f"{record['steps']:,}" if record else "–"
        lines.append(
            f"| {name} | `{command(task, seed)}` | {steps} | {minutes} | {_machine(rows)} | {memory} | {_evaluation(task, seed)} |"
        )
    return lines


def first_seed(task: Task, record: dict[str, Any] | None) -> int:
    """The lowest recorded seed of a task, or the lowest one that its suite trains."""
    return min(map(int, record["seeds"])) if record and record["seeds"] else task.first_seed


def _evaluation(task: Task, seed: int) -> str:
    """The command that evaluates the last run, of ``seed``, as the suite does."""
    policy = "greedy" if task.policy == "greedy" else "stochastic"
    changed = ",".join(f"{name}={value}" for name, value in task.unseen.items())
    env = f" --env-settings {shlex.quote(changed)}" if changed else ""
    return f"`proximo eval last --{policy} --episodes {task.episodes} --seed {EVALUATION_SEEDS + seed}{env}`"


def _minutes(rows: list[dict[str, Any]]) -> str:
    """Median, and the range if it is not narrow."""
    values = [row["wall_seconds"] / 60 for row in rows if row.get("wall_seconds") is not None]  # the oldest results lack some
    if not values:
        return "–"
    middle, low, high = (f"{minutes:.1f}" for minutes in (statistics.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} … {high})"


def _median(rows: list[dict[str, Any]], key: str) -> str:
    values = [row[key] for row in rows if row.get(key) is not None]
    return f"{statistics.median(values):.0f}" if values else "–"


def command(task: Task, seed: int) -> str:
    """The command that trains a seed of ``task``."""
    flags = [f"--{name.replace('_', '-')} {shlex.quote(text_of(value))}" for name, value in task.settings.items()]
    chosen = [f"--seed {seed}"] if seed else []
    return " ".join(["proximo train", task.env, *([] if task.preset else ["--no-preset"]), *flags, *chosen])


def write_pages() -> None:
    """Write all pages."""
    PAGES.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    write_pages()
