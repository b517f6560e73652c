"""The runs of a report: their metrics, settings and how each ended; and their groups."""

import contextlib
import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from proximo.config import BY_NAME, GROUPS, LEAVES, WORKER_SETTINGS, text_of, unknown
from proximo.config.schema import Entries
from proximo.errors import CheckpointError
from proximo.serialization import JsonObject
from proximo.storage.named_folders import names_of, seed_run_dirs
from proximo.storage.run_directory import FAILURE, METRICS, STOPPED, in_use, read_config
from proximo.storage.run_lookup import find_run
from proximo.tracking.run_trackers import read_rows

EVALUATION, TRAINING, SUCCESS = "eval/return_mean", "rollout/return_mean", "eval/success_rate"
RESULT_SETTINGS = {"matmul_precision", "eval_env", "eval_env_settings", "eval_max_steps"}
"""Settings of the group ``run`` that change what is learned, or which episodes measure it."""
IRRELEVANT_SETTINGS = {
    *({name for name, leaf in LEAVES.items() if leaf.group == "run"} - RESULT_SETTINGS),
    *(name for name in BY_NAME if name.partition(".")[0] in WORKER_SETTINGS),
}
"""Settings that change neither what is learned nor how it is measured."""
MAX_NAMED = 3
"""Groups that differ in more settings are labelled by the names of their runs, if possible."""


class Series(NamedTuple):
    """The values of one metric of one run."""

    step: np.ndarray
    seconds: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class RunRecord:
    """One run: a single one, or one seed of several."""

    path: Path
    label: str  # the name of its folder; group/seed-i for one of several seeds
    settings: JsonObject
    """Every setting; entries of mappings are ``env_settings.key``, and ``name`` names the run or its group."""
    named: bool  # whether the user chose the name
    total_steps: int
    rows: list[JsonObject]  # of metrics.jsonl: a value that was NaN, infinite or not measured is None
    seconds: np.ndarray  # of training at each row, in all sessions
    first_step: int  # at which the first session began: above 0 if the run was pulled
    status: str  # finished, running, interrupted, stopped (by a callback), failed or not started
    why: str  # the reason why it failed or was stopped; else empty

    @property
    def step(self) -> int:
        """The step that it has reached."""
        return self.rows[-1]["step"] if self.rows else 0

    @property
    def ends_with_nan(self) -> bool:
        """Whether the return of its last evaluation is NaN."""
        return [row[EVALUATION] for row in self.rows if EVALUATION in row][-1:] == [None]

    def setting(self, name: str) -> str:
        """The value of a setting as text."""
        return text_of(self.settings.get(name, "–"))

    def series(self, metric: str) -> Series:
        """The values of ``metric``; empty if it was never measured."""
        at = [i for i, row in enumerate(self.rows) if row.get(metric) is not None]
        step, value = ([self.rows[i][name] for i in at] for name in ("step", metric))
        return Series(np.array(step, np.int64), self.seconds[at], np.array(value, np.float64))


def read_runs(texts: Sequence[str], runs_dir: Path) -> list[RunRecord]:
    """The runs that ``texts`` name, each once; a group stands for its seeds.

    Raises ``CheckpointError`` if a run is unknown or damaged, or if no run has metrics yet.
    """
    records: dict[Path, RunRecord] = {}
    for text in texts:
        path, which = find_run(text, runs_dir, with_zoo=False)
        if which != "last":
            raise CheckpointError(f"{text!r}: a report is about whole runs, not checkpoints: omit @ and what follows it.")
        records |= {run_dir.resolve(): read_run(run_dir) for run_dir in seed_run_dirs(path) or [path]}
    if all(run.status == "not started" for run in records.values()):
        raise CheckpointError(
            f"No run has metrics yet ({', '.join(texts)}): wait for the first update, or check whether training was stopped."
        )
    return list(records.values())


def read_run(run_dir: Path) -> RunRecord:
    """Read one run. Raises ``CheckpointError`` if its settings or metrics are damaged."""
    config, rows, names = read_config(run_dir), read_rows(run_dir / METRICS), names_of(run_dir)
    settings: JsonObject = {}
    for key, value in (pair for group in GROUPS for pair in vars(getattr(config, group)).items()):
        parts = vars(value) if isinstance(value, Entries) else value
        settings |= {f"{key}.{part}": x for part, x in parts.items()} if isinstance(parts, dict) else {key: value}
    total = config.total_updates * config.batch_size
    # NaN counts, too: nothing is left to evaluate.
    is_evaluated = not config.run.eval_episodes or any(row["step"] >= total for row in rows if EVALUATION in row)
    files = {"failed": run_dir / FAILURE, "stopped": run_dir / STOPPED}
    if ended := [status for status, file in files.items() if file.is_file()]:
        status = ended[0]
    elif not rows or in_use(run_dir):
        status = "running" if rows else "not started"
    else:
        status = "finished" if rows[-1]["step"] >= total and is_evaluated else "interrupted"
    why = files[status].read_text(encoding="utf-8", errors="replace").strip() if ended else ""
    settings["name"] = names[0]
    return RunRecord(run_dir, "/".join(names), settings, bool(config.run.name), total, rows, *_clock(rows), status, why)


def _clock(rows: list[JsonObject]) -> tuple[np.ndarray, int]:
    """The seconds at each row, summed over sessions, and the step at which the first session began.

    The clock of a resumed run starts again. Its session began at ``step - seconds · steps_per_second``, which is not
    before the last row of the previous session.
    """
    names = ("step", "time/seconds", "time/steps_per_second")
    timed = [i for i, row in enumerate(rows) if all(row.get(name) is not None for name in names)]
    if not timed:
        return np.zeros(len(rows)), 0
    step, seconds, speed = np.array([[rows[i][name] for name in names] for i in timed], np.float64).T
    began = step - seconds * speed
    restarted = (np.diff(seconds) < 0) | (began[1:] > step[:-1] - 0.5)
    total = seconds + np.append(0, np.cumsum(np.where(restarted, seconds[:-1], 0)))
    latest = np.searchsorted(timed, range(len(rows)), side="right")
    return np.append(0, total)[latest], max(0, round(began[0]))


@dataclass(frozen=True)
class Section:
    """The groups of runs of one environment by their label, normally seeds with equal settings."""

    environment: str
    groups: dict[str, list[RunRecord]]

    @property
    def labelled(self) -> list[tuple[str, RunRecord]]:
        """The runs of all groups, each with the label of its group."""
        return [(label, run) for label, runs in self.groups.items() for run in runs]

    @functools.cached_property
    def runs(self) -> list[RunRecord]:
        """The runs of all groups."""
        return [run for _, run in self.labelled]

    @functools.cached_property
    def measure(self) -> str:
        """The metric that ranks the runs: the training return if no run was evaluated."""
        return EVALUATION if any(len(run.series(EVALUATION).value) for run in self.runs) else TRAINING

    @functools.cached_property
    def worst(self) -> float:
        """The lowest return that any run has measured, in evaluation or in training; NaN without one."""
        series = (run.series(name).value.tolist() for run in self.runs for name in (EVALUATION, TRAINING))
        return min((value for values in series for value in values), default=math.nan)


def sections_of(runs: Sequence[RunRecord], by: Sequence[str] = ()) -> list[Section]:
    """One section for each environment. ``by``: settings to group by; empty for all that differ."""
    keys = [setting_of(text, runs) for text in by]
    environments: dict[str, list[RunRecord]] = {}
    for run in runs:
        environments.setdefault(run.settings["id"], []).append(run)
    return [Section(name, _groups(name, found, keys)) for name, found in environments.items()]


def setting_of(text: str, runs: Iterable[RunRecord]) -> str:
    """The setting that ``--by`` names: ``memory``, ``network.memory``, ``env_settings.key`` or ``name``.

    Raises ``ConfigError`` with the nearest name if the setting is unknown.
    """
    known = {key for run in runs for key in run.settings}
    group, _, rest = (name := text.strip().replace("-", "_")).partition(".")
    without_group = rest if group in GROUPS else name
    for found in (text.strip(), without_group):  # keys of mappings may have dashes
        if found in known:
            return found
    raise unknown(without_group, " for --by")


def differing(runs: Sequence[RunRecord]) -> list[str]:
    """Relevant settings that differ between ``runs``, in the order of the configuration."""
    names = dict.fromkeys(name for run in runs for name in run.settings if name not in IRRELEVANT_SETTINGS)
    return [name for name in names if len({run.setting(name) for run in runs}) > 1]


def _groups(environment: str, runs: list[RunRecord], by: list[str]) -> dict[str, list[RunRecord]]:
    keys = by or differing(runs)
    groups: dict[tuple[str, ...], list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(tuple(run.setting(key) for key in keys), []).append(run)
    with contextlib.suppress(ValueError):  # by number; other values stay in the given order
        groups = dict(sorted(groups.items(), key=lambda group: [float(text) for text in group[0]]))
    names = [{run.settings["name"] for run in group} for group in groups.values()]
    distinct = sum(map(len, names)) == len(set.union(*names)) == len(names)
    preferred = len(keys) not in range(1, MAX_NAMED + 1) or all(run.named for run in runs)
    if distinct and preferred and not by:
        return {group[0].settings["name"]: group for group in groups.values()}
    pairs = (", ".join(x if key == "name" else f"{key}={x}" for key, x in zip(keys, values, strict=True)) for values in groups)
    return {label or environment: group for label, group in zip(pairs, groups.values(), strict=True)}
