"""The tasks of a suite, as ``suites/NAME.yaml`` describes them, and the file of its results."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from proximo.config import LEAVES, Config, to_mapping
from proximo.config.presets import KINDS
from proximo.config.schema import RENAMED
from proximo.serialization import read_yaml

EVALUATION_SEEDS = 1_000_000
"""Seed s is evaluated with the seed EVALUATION_SEEDS + s, which no training and no tuning uses."""


@dataclass(frozen=True)
class Task:
    """One row of a suite. The file gives the same names, for each task or as ``defaults`` for all."""

    env: str
    """Id of the environment; by default the name of the task up to the first comma."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings in addition to those of the preset."""
    preset: bool = True
    """Whether to start from the preset of the environment, or, without one, from the defaults of its kind."""
    kind: str = ""
    """Kind of environment. The training starts from the defaults of this kind, also if there is a preset; empty: as ``preset`` says."""
    random: float | None = None
    """Mean return of uniformly random actions, the zero of scores of candidates (``suite_candidates.py``)."""
    seeds: int = 10
    """Number of seeds."""
    first_seed: int = 20
    """The lowest seed: 20 for results, 40 after a change of the settings, 100 for tuning. Choices have used the seeds 0 to 19."""
    episodes: int = 100
    """Episodes in the evaluation of the final policy."""
    metric: str = "return_mean"
    """The score, an entry of the summary of the evaluation."""
    policy: Literal["greedy", "sampled"] = "greedy"
    """How the evaluation chooses actions."""
    unseen: dict[str, Any] = field(default_factory=dict)
    """Parameters of the environment of the evaluation, such as levels that the training has not used."""
    judged_by: Literal["mean", "worst"] = "mean"
    """Whether the mean over seeds or the worst seed must reach ``mark`` and ``aim``."""
    mark: float | None = None
    """Score that must be reached."""
    mark_steps: int | None = None
    """Environment steps that a training may take to reach the mark; None: as many as it takes."""
    aim: float | None = None
    """Score that is aimed for."""
    aim_steps: int | None = None
    """Environment steps that a training may take to reach the aim; None: as many as it takes."""
    also_on: dict[str, float | None] = field(default_factory=dict)
    """Other environments that the final policy is evaluated on, with the score that is aimed for."""
    published: dict[str, str] = field(default_factory=dict)
    """Published scores by source, as text."""

    @property
    def has_criteria(self) -> bool:
        """Whether there is a mark or an aim, or an aim on another environment."""
        return any(score is not None for score in (self.mark, self.aim, *self.also_on.values()))


@dataclass(frozen=True)
class Suite:
    """A suite."""

    title: str
    about: str
    """Introduction of the page in the documentation: what the tasks are, and what to install. A suite without it has no page."""
    published: dict[str, str]
    """What each published column is, and where it is from."""
    tasks: dict[str, Task]
    notes: str = ""
    """What the results leave out: what fell short, what was tried, and when and where the seeds were trained. Markdown."""
    candidates: tuple[str, ...] = ()
    """Names of the candidates. Each environment has a task ``ENV, CANDIDATE`` for each of them."""

    def only(self, names: Sequence[str] | None, candidates: Sequence[str] | None = None) -> Suite:
        """The suite with the tasks in ``names`` (of a suite with candidates: their environments) and with ``candidates``; None: all."""
        parts = {task: task.split(", ", 1) if self.candidates else (task, "") for task in self.tasks}
        chosen = list(self.tasks)
        for place, (what, wanted) in enumerate((("task", names), ("candidate", candidates))):
            known = list(dict.fromkeys(part[place] for part in parts.values()))
            if unknown := [name for name in wanted or () if name not in known]:
                sys.exit(f"There is no {what} {', '.join(unknown)}: expected {', '.join(known) or 'none'}.")
            chosen = [task for task in chosen if not wanted or parts[task][place] in wanted]
        return replace(self, tasks={name: self.tasks[name] for name in chosen})


def load_suite(path: Path) -> Suite:
    """The suite in a YAML file. Exits with a message if the file does not describe a suite."""
    content = read_yaml(path.read_bytes(), aliases=True)
    if not isinstance(content, dict) or not isinstance(content.get("tasks"), dict) or "title" not in content:
        sys.exit(f"{path}: expected a title, and tasks by name: benchmarks/suites/pong.yaml is an example of a suite.")
    defaults, published = content.get("defaults") or {}, content.get("published") or {}
    for name, task in content["tasks"].items():
        if not isinstance(task, dict | None):
            sys.exit(f"{path}: {name} is {task!r}; expected entries such as settings: {{total_steps: 1000}}.")
    tasks = {name: {**defaults, **(task or {})} for name, task in content["tasks"].items()}
    candidates = content.get("candidates") or {}
    if candidates and (without := [name for name, task in tasks.items() if task.get("kind") not in KINDS]):
        sys.exit(f"{path}: {', '.join(without)}: expected kind: {', '.join(KINDS)}, because the suite has candidates.")
    for candidate, changes in candidates.items():
        if unknown := set(changes or ()) - {"preset", *KINDS}:
            sys.exit(f"{path}: the candidate {candidate} has {', '.join(sorted(unknown))}: expected preset, {', '.join(KINDS)}.")
    if candidates:
        tasks = {
            f"{name}, {candidate}": with_candidate(task, changes or {})
            for candidate, changes in candidates.items()
            for name, task in tasks.items()
            if changes is None or changes.keys() & {"preset", task["kind"]}
        }
    known = {entry.name for entry in fields(Task)}
    for name, task in tasks.items():
        if unknown := set(task) - known:
            sys.exit(f"{path}: {name} has unknown entries: {', '.join(sorted(unknown))}; expected {', '.join(sorted(known))}.")
        if not (type(seeds := task.get("seeds", 1)) is int and seeds > 0):
            sys.exit(f"{path}: {name} has seeds: {seeds}; expected their number. The first one is first_seed.")
        if unknown := set(task.get("published", ())) - set(published):
            sys.exit(f"{path}: {name} has results of {', '.join(sorted(unknown))}, whose source is missing under published.")
    return Suite(
        content["title"],
        (content.get("about") or "").strip(),
        published,
        {name: Task(**{"env": name.partition(",")[0], **task}) for name, task in tasks.items()},
        (content.get("notes") or "").strip(),
        tuple(candidates),
    )


def with_candidate(task: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The entries of a task for a candidate: its ``changes`` for the kind of the task. The settings of the task
    override them. With ``preset: true``, the task starts from its preset and has no changes."""
    if changes.get("preset"):
        return {**task, "kind": ""}
    return {**task, "settings": {**changes.get(task["kind"], {}), **task.get("settings", {})}}


def read_results(path: Path) -> dict[str, Any]:
    """The results in a file. A missing file has no tasks."""
    results = json.loads(path.read_text()) if path.is_file() else {"tasks": {}}
    if "tasks" not in results:
        sys.exit(f"{path} has no results of a suite: give the file that --out has written.")
    return results


def recorded_seeds(path: Path, task: str, described: dict[str, Any]) -> dict[str, Any]:
    """The recorded rows of ``task`` by seed. Exits if they were trained or evaluated with other settings than ``described`` has."""
    recorded = read_results(path)["tasks"].get(task, {"seeds": {}})
    if recorded["seeds"] and (unlike := differences(recorded, described)):
        sys.exit(f"{path} has seeds of {task} with other settings ({', '.join(unlike)}): remove them to train the task again.")
    return recorded["seeds"]


def add_result(path: Path, about: dict[str, Any], task: str, described: dict[str, Any], seed: int, row: dict[str, Any]) -> None:
    """Add the ``row`` of a seed to the results. Several processes may add at the same time. Exits if the other seeds have other
    settings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        tasks = read_results(path)["tasks"]
        seeds = {**recorded_seeds(path, task, described), str(seed): row}
        tasks[task] = {**described, "seeds": dict(sorted(seeds.items(), key=lambda item: int(item[0])))}
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps({**about, "tasks": tasks}, indent=1) + "\n")
        beside.replace(path)


def differences(recorded: dict[str, Any], described: dict[str, Any]) -> list[str]:
    """What differs between two descriptions of a task. Seeds of tasks that differ cannot share a row."""
    settings = [flat(record["settings"]) for record in (recorded, described)]
    # A setting that only one of them has is newer than the other: it has its default there.
    defaults = flat(to_mapping(Config()))
    names = [
        name
        for name in settings[0].keys() | settings[1].keys()
        if name in defaults and settings[0].get(name, defaults[name]) != settings[1].get(name, defaults[name])
    ]
    return sorted([*names, *(name for name in ("metric", "policy", "episodes", "unseen") if recorded[name] != described[name])])


def has_entries(name: str) -> bool:
    """Whether a setting consists of entries."""
    return name in LEAVES and bool(LEAVES[name].entries)


def flat(settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The settings of all groups together, and entries of settings, by their present names."""
    by_name = {RENAMED.get(name, name): value for group in settings.values() for name, value in group.items()}
    entries = {f"{name}.{entry}": x for name, value in by_name.items() if has_entries(name) for entry, x in value.items()}
    return {name: value for name, value in by_name.items() if not has_entries(name)} | entries
