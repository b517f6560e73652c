"""Seeds of the suites that were trained before the present ones, from the history of this repository.

    python benchmarks/earlier_seeds.py      # writes results/earlier_seeds.json, and prints the table of RESULTS.md

When a task is trained again, with a new preset or after a change of the code, ``suite_NAME.json`` keeps only the new seeds. This script finds
the others: how often a preset was changed after its reported seeds were known is a part of the result.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    return {name: value for group, content in settings.items() for name, value in {**defaults[group], **content}.items()}


def earlier(path: Path) -> list[dict[str, Any]]:
    """The trainings in the history of ``path`` that are not in it now, grouped by task and settings."""
    now = json.loads(path.read_text())["tasks"]
    trainings: dict[str, dict[str, Any]] = {}
    for commit, content in versions(path):
        for task, entry in content.get("tasks", {}).items():
            today, settings = (flat(of["settings"]) if of else {} for of in (now.get(task), entry))
            changed = {name: value for name, value in settings.items() if name in today and today[name] != value}
            for seed, record in entry["seeds"].items():
                kept = now.get(task, {}).get("seeds", {}).get(seed, {})
                if not changed and record["score"] == kept.get("score"):  # the same training, or one to the same bits
                    continue
                row = {"suite": content["suite"], "task": task, "settings": changed, "steps": entry["steps"]}
                result = {"score": record["score"], "date": record["date"]}
                for again in itertools.count():  # with equal settings, a later date is another training
                    group = trainings.setdefault(f"{json.dumps(row)} {again}", {**row, "commit": commit, "seeds": {}})
                    if group["seeds"].setdefault(seed, result)["date"] == record["date"]:
                        break
    return list(trainings.values())


def main() -> None:
    """Write the file, and print the table."""
    paths = sorted(path for path in RESULTS.glob("suite_*.json") if "tuning" not in path.name)
    rows = [row for path in paths for row in earlier(path)]
    OUT.write_text(json.dumps({"command": "python benchmarks/earlier_seeds.py", "trainings": rows}, indent=1) + "\n")
    print(
        "| Suite | Task | Date | Settings that differ from today's | Steps | Final policy of every seed |\n|---|---|---|---|---|---|"
    )
    for row in rows:
        seeds = [row["seeds"][seed] for seed in sorted(row["seeds"], key=int)]
        settings = ", ".join(f"`{name}: {value}`" for name, value in row["settings"].items()) or "none: an earlier version"
        scores = " ".join(f"{seed['score']:.4g}" for seed in seeds)
        days = sorted({seed["date"] for seed in seeds})
        dates = " … ".join(dict.fromkeys((days[0], days[-1])))
        print(f"| {row['suite']} | `{row['task']}` | {dates} | {settings} | {row['steps']:,} | {scores} |")


if __name__ == "__main__":
    main()
