"""Reads runs for a report: metrics, settings, and how each run ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proximo.config import GROUPS, text_of
from proximo.config.schema import Entries
from proximo.errors import CheckpointError
from proximo.storage.named_folders import seed_run_dirs
from proximo.storage.run_directory import FAILURE, METRICS, STOPPED, read_config
from proximo.storage.run_lock import in_use
from proximo.storage.run_lookup import find_run
from proximo.tracking.run_trackers import read_rows

EVALUATION, TRAINING, SUCCESS = "eval/return_mean", "rollout/return_mean", "eval/success_rate"


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
    settings: dict[str, Any]
    """Every setting; entries of mappings are ``env_settings.key``, and ``name`` names the run or its group."""
    named: bool  # whether the user chose the name
    total_steps: int
    rows: list[dict[str, Any]]  # of metrics.jsonl: a value that was NaN, infinite or not measured is None
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
    config, rows, folder = read_config(run_dir), read_rows(run_dir / METRICS), run_dir.resolve()
    is_seed = folder in seed_run_dirs(folder.parent)
    name = folder.parent.name if is_seed else folder.name
    settings: dict[str, Any] = {}
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
    label, clock = f"{name}/{folder.name}" if is_seed else name, _clock(rows)
    return RunRecord(run_dir, label, {**settings, "name": name}, bool(config.run.name), total, rows, *clock, status, why)


def _clock(rows: list[dict[str, Any]]) -> tuple[np.ndarray, int]:
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
