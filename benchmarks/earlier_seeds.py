"""Seeds of the suites that were trained with an earlier preset, from the history of this repository.

    python benchmarks/earlier_seeds.py      # writes results/earlier_seeds.json, and prints the table of RESULTS.md

When a preset changes, ``suite_NAME.json`` keeps only the seeds of the new one. This file keeps the others, so that every trained seed of a
suite can be seen: how often a preset was changed after its reported seeds were known is a part of the result.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    return {name: value for group in settings.values() for name, value in group.items()}


def earlier(path: Path) -> list[dict[str, Any]]:
    """The trainings in the history of ``path`` whose record is no longer in it. A later evaluation of the same training is no other one."""
    now = json.loads(path.read_text())["tasks"]
    trainings: dict[str, dict[str, Any]] = {}
    for commit, content in versions(path):
        for task, entry in content.get("tasks", {}).items():
            today = flat(now[task]["settings"]) if task in now else {}
            settings = flat(entry["settings"])
            changed = {name: value for name, value in settings.items() if name in today and today[name] != value}
            if task in now and not changed:
                continue
            for seed, record in entry["seeds"].items():
                row = {"suite": content["suite"], "task": task, "settings": changed, "steps": entry["steps"]}
                group = trainings.setdefault(json.dumps(row), {**row, "commit": commit, "seeds": {}})
                group["seeds"][seed] = record["score"]
    return list(trainings.values())


def main() -> None:
    """Write the file, and print the table."""
    paths = sorted(path for path in RESULTS.glob("suite_*.json") if "tuning" not in path.name)
    rows = [row for path in paths for row in earlier(path)]
    OUT.write_text(json.dumps({"command": "python benchmarks/earlier_seeds.py", "trainings": rows}, indent=1) + "\n")
    print("| Suite | Task | Settings that differ from today's | Steps | Final policy of every seed |\n|---|---|---|---|---|")
    for row in rows:
        settings = (
            ", ".join(f"`{name}: {value}`" for name, value in row["settings"].items()) or "the task is not in the suite any more"
        )
        scores = " ".join(f"{score:.4g}" for _, score in sorted(row["seeds"].items(), key=lambda pair: int(pair[0])))
        print(f"| {row['suite']} | `{row['task']}` | {settings} | {row['steps']:,} | {scores} |")


if __name__ == "__main__":
    main()
