"""Builds the page of a report from the runs that a user names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from proximo.errors import RunDirectoryError
from proximo.report import page
from proximo.report.curves import charts_of
from proximo.report.grouping import sections_of
from proximo.report.read import read_runs
from proximo.report.results import as_json, notes
from proximo.storage.run_lookup import find_run

DEFAULT_FOLDER = Path("report")


@dataclass(frozen=True)
class Report:
    """The page of a report and what it contains."""

    html: Path
    results: dict[str, Any]
    """The table of results and the probabilities of improvement."""
    warnings: list[str]
    """How many runs without a result are left out or count as the worst."""

    def __repr__(self) -> str:
        environments = dict.fromkeys(row["environment"] for row in self.results["table"])
        return f"Report({str(self.html)!r}: {', '.join(environments)})"


def write_report(texts: Sequence[str], runs_dir: Path = Path("runs"), by: Sequence[str] = (), out: Path | None = None) -> Report:
    """Write ``report.html``.

    Args:
        texts: The runs: paths, names, or ``last``. The parent folder of several seeds stands for all of them.
        runs_dir: Folder of all runs.
        by: Settings to group runs by; empty for all settings that differ, except the seed.
        out: Folder to write to; None for the folder of a single run, else ``report``.

    Returns:
        The page and what it contains.

    Raises:
        CheckpointError: A run is unknown, empty or damaged.
        ConfigError: A setting in ``by`` is unknown.
        RunDirectoryError: The folder cannot be written to.
    """
    runs = read_runs(texts, runs_dir)
    sections = sections_of(runs, by)
    folder = out or (find_run(texts[0], runs_dir)[0] if len(texts) == 1 else DEFAULT_FOLDER)
    results, charts = as_json(sections), [charts_of(section, len(runs)) for section in sections]
    report = Report(folder / "report.html", results, notes(results["table"]))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        report.html.write_text(page.render(sections, charts, results, datetime.now()), encoding="utf-8")
    except OSError as error:
        raise RunDirectoryError(f"Cannot write the report to {folder} ({error.strerror}): choose another --out.") from error
    return report
