"""Reads runs for a report: metrics, settings, and how each run ended."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from proximo.config import GROUPS, Config
from proximo.errors import CheckpointError
from proximo.serialization import json_object
from proximo.storage.named_folders import seed_run_dirs
from proximo.storage.run_directory import FAILURE, METRICS, STOPPED, read_config
from proximo.storage.run_lock import in_use
from proximo.storage.run_lookup import find_run
from proximo.tracking.json_lines import read_rows

EVALUATION = "eval/return_mean"
ROW_BEGINS = b'{"step": '


@dataclass(frozen=True)
class Series:
    """The finite values of one metric of one run. ``seconds`` count the training in all sessions; NaN if unknown."""

    step: np.ndarray
    seconds: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class RunRecord:
    """One run: a single one, or one seed of several."""

    path: Path
    name: str
    """Name of its folder, or of the folder of its group."""
    label: str
    settings: dict[str, Any]
    total_steps: int
    status: str
    """``finished``, ``running``, ``interrupted``, ``stopped`` (by a callback), ``failed`` or ``not started``."""
    why: str
    """The error message of a failed run, and what stopped a stopped one; else empty."""
    step: int
    seconds: float
    first_step: int
    """Step at which the first session began: above 0 if the run was pulled."""
    series: dict[str, Series]
    start_info: dict[str, str]
    invalid: bool = False
    """Whether the mean return of its last evaluation is NaN or infinity."""

    @property
    def environment(self) -> str:
        return self.settings["id"]

    @property
    def seed(self) -> int:
        return self.settings["seed"]

    def values(self, metric: str) -> np.ndarray:
        """The finite values of ``metric``; empty if it was never measured."""
        return self.series[metric].value if metric in self.series else np.empty(0)


def read_runs(texts: Collection[str], runs_dir: Path) -> list[RunRecord]:
    """The runs that ``texts`` name, each once; a group stands for its seeds.

    Raises ``CheckpointError`` if a run is unknown or damaged, or if no run has metrics yet.
    """
    records: dict[Path, RunRecord] = {}
    named: list[Path] = []
    if not texts:
        raise CheckpointError("No run is named: expected at least one, such as last.")
    for text in texts:
        path, which = find_run(text, runs_dir, with_zoo=False)
        if which != "last":
            raise CheckpointError(f"{text!r}: a report is about whole runs, not checkpoints: omit @ and what follows it.")
        found = [read_run(run_dir, path) for run_dir in seed_run_dirs(path)] or [read_run(path)]
        named.append(path)
        records |= {record.path.resolve(): record for record in found}
    if all(record.status == "not started" for record in records.values()):
        have = "has" if len(named) == 1 else "have"
        raise CheckpointError(
            f"{', '.join(map(str, named))} {have} no metrics yet: wait for the first update, or check whether training was stopped."
        )
    return list(records.values())


def read_run(run_dir: Path, group: Path | None = None) -> RunRecord:
    """Read one run, which may belong to a ``group``. Raises ``CheckpointError`` if its settings or metrics are damaged."""
    config = read_config(run_dir)
    rows = _rows(run_dir / METRICS)
    seconds = _seconds(rows)
    series = _series(rows, seconds)
    if group is None and run_dir.name.startswith("seed-") and run_dir.parent.name:
        group = run_dir.parent
    name = (group or run_dir).resolve().name
    step = max((row["step"] for row in rows), default=0)
    status, why = _status(run_dir, config, step, rows)
    return RunRecord(
        path=run_dir,
        name=name,
        label=name if group is None else f"{name}/{run_dir.resolve().name}",
        settings=flat_settings(config),
        total_steps=config.total_updates * config.batch_size,
        status=status,
        why=why,
        step=step,
        seconds=max((s for s in seconds if math.isfinite(s)), default=math.nan),
        first_step=_first_step(rows),
        series=series,
        start_info=_start_info(run_dir),
        invalid=next((not _number(row[EVALUATION]) for row in reversed(rows) if EVALUATION in row), False),
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl. A crash may leave an incomplete last line, which must at least begin like a row."""
    rows = read_rows(path)
    begun = path.read_bytes()[: len(ROW_BEGINS)] if not rows and path.exists() else b""
    if not ROW_BEGINS.startswith(begun):
        raise CheckpointError(f"{path} is damaged: line 1 is not a row of metrics. Remove that line.")
    return rows


def flat_settings(config: Config) -> dict[str, Any]:
    """Every setting by its name; entries of mappings are named ``env_settings.key``."""
    flat: dict[str, Any] = {}
    for group in GROUPS:
        for name, value in vars(getattr(config, group)).items():
            flat |= {f"{name}.{key}": entry for key, entry in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _number(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # not bool; isfinite raises for a very large int


def _seconds(rows: list[dict[str, Any]]) -> list[float]:
    """Seconds of training at each row, summed over sessions.

    A resumed run counts from zero again. A new session has begun if the seconds of a row are fewer than those of the previous row, or if
    the session of the row, which began at ``step - seconds · steps_per_second``, did not begin before the previous row.
    """
    found, earlier, latest, last_step, last_session = [], 0.0, math.nan, None, 0.0
    for row in rows:
        session, speed = row.get("time/seconds"), row.get("time/steps_per_second")
        if _number(session) and _number(speed):
            if last_step is not None and (session < last_session or row["step"] - session * speed > last_step - 0.5):
                earlier = latest
            latest, last_step, last_session = earlier + session, row["step"], session
        found.append(latest)
    return found


def _first_step(rows: list[dict[str, Any]]) -> int:
    """The step at which the first session began."""
    timed = (row for row in rows if _number(row.get("time/seconds")) and _number(row.get("time/steps_per_second")))
    return next((max(0, round(row["step"] - row["time/seconds"] * row["time/steps_per_second"])) for row in timed), 0)


def _series(rows: list[dict[str, Any]], seconds: list[float]) -> dict[str, Series]:
    columns: dict[str, tuple[list[int], list[float]]] = {}
    for i, row in enumerate(rows):
        for name, value in row.items():
            if _number(value):
                places, values = columns.setdefault(name, ([], []))
                places.append(i)
                values.append(value)
    steps, clock = np.array([row["step"] for row in rows], np.int64), np.array(seconds, np.float64)
    series = {}
    for name, (places, values) in columns.items():
        order = np.argsort(steps[places], kind="stable")
        at = np.array(places)[order]
        series[name] = Series(steps[at], clock[at], np.array(values, np.float64)[order])
    series.pop("step", None)
    return series


def _status(run_dir: Path, config: Config, step: int, rows: list[dict[str, Any]]) -> tuple[str, str]:
    for status, name in (("failed", FAILURE), ("stopped", STOPPED)):
        if (file := run_dir / name).is_file():
            return status, file.read_text(encoding="utf-8", errors="replace").strip()
    if in_use(run_dir):
        return ("running" if step else "not started"), ""
    if not step:
        return "not started", ""
    total = config.total_updates * config.batch_size
    # NaN counts, too: nothing is left to evaluate.
    evaluated = not config.run.eval_episodes or any(row["step"] >= total for row in rows if EVALUATION in row)
    return ("finished" if step >= total and evaluated else "interrupted"), ""


def _start_info(run_dir: Path) -> dict[str, str]:
    """When, where and how the run was started, as far as its files contain it."""
    system = json_object(run_dir / "system.json")
    versions = system.get("versions")
    versions = versions if isinstance(versions, dict) else {}
    info = {
        "started": str(system.get("started", ""))[:19].replace("T", " "),
        "device": str(system.get("device_kind", "")),
        "processor": str(system.get("processor", "")),
        "versions": ", ".join(f"{name} {versions[name]}" for name in ("proximo", "jax") if name in versions),
    }
    command = run_dir / "command.txt"
    if command.is_file():
        info["command"] = command.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    return {name: text for name, text in info.items() if text}
