"""Seeds of the suites that were trained before the present ones, from the history of this repository.

    python benchmarks/earlier_seeds.py      # writes results/earlier_seeds.json; suite_pages.py shows it

When a task is trained again, with a new preset or after a change of the code, ``suite_NAME.json`` keeps only the new seeds. This script finds
the others: how often a preset was changed after its reported seeds were known is a part of the result.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import suite_seed
import suite_tasks
from proximo.config import Config, to_mapping

RESULTS = Path(__file__).parent / "results"
OUT = RESULTS / "earlier_seeds.json"


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(RESULTS), *arguments], capture_output=True, text=True, check=True).stdout


def versions(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each committed version of a results file with its commit, the oldest first."""
    for commit in git("log", "--reverse", "--format=%h", "--", path.name).split():
        try:
            yield commit, json.loads(git("show", f"{commit}:./{path.name}"))
        except subprocess.CalledProcessError:  # the commit removed the file
            continue


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings by name. A setting that did not exist yet counts as its default."""
    defaults = to_mapping(Config())
    return suite_tasks.flat({group: defaults[group] for group in settings}) | suite_tasks.flat(settings)


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Every record of a seed in the history of ``path``."""
    for commit, content in versions(path):
        for task, entry in content.get("tasks", {}).items():
            common = {"suite": content["suite"], "task": task, "settings": flat(entry["settings"]), "steps": entry["steps"]}
            for seed, record in entry["seeds"].items():
                yield {**common, "commit": commit, "seed": seed, "score": record["score"], "date": record["date"]}


def present(path: Path) -> dict[str, Any]:
    """The tasks in ``path``, and without seeds those of its suite that are not trained yet with the settings of today."""
    now = json.loads(path.read_text())["tasks"]
    suite = suite_tasks.load_suite(path.parents[1] / "suites" / f"{path.stem.removeprefix('suite_')}.yaml")
    for name, task in suite.tasks.items():
        if name not in now:
            config = suite_seed.config_of(task, name, task.first_seed, Path("runs"))
            now[name] = {**suite_seed.described(task, config), "seeds": {}}
    return now


def earlier(path: Path) -> list[dict[str, Any]]:
    """The trainings in the history of ``path`` that are not in it now, grouped by task and settings."""
    now = present(path)
    groups: list[dict[str, Any]] = []
    for record in records(path):
        task = now.get(record["task"], {"settings": {}, "seeds": {}})
        today, seed = flat(task["settings"]), record["seed"]
        changed = {name: value for name, value in record["settings"].items() if name in today and today[name] != value}
        kept = task["seeds"].get(seed, {})
        if not changed and record["score"] == kept.get("score"):  # the same training, or one to the same bits
            continue
        row = {**{name: record[name] for name in ("suite", "task", "steps")}, "settings": changed}
        result = {"score": record["score"], "date": record["date"]}
        alike = [group for group in groups if row.items() <= group.items()]
        # With equal settings, a later date is another training.
        group = next((group for group in alike if group["seeds"].get(seed, result)["date"] == result["date"]), None)
        if group is None:
            groups.append(group := {**row, "commit": record["commit"], "seeds": {}})
        group["seeds"].setdefault(seed, result)
    return groups


def main() -> None:
    """Write the file."""
    paths = sorted(path for path in RESULTS.glob("suite_*.json") if not re.search("tuning|panel", path.name))
    groups = [group for path in paths for group in earlier(path)]
    OUT.write_text(json.dumps({"command": "python benchmarks/earlier_seeds.py", "trainings": groups}, indent=1) + "\n")


if __name__ == "__main__":
    main()
