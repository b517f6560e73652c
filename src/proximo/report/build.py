"""Builds the files of a report from the runs that a user names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from proximo.errors import RunDirectoryError
from proximo.report import figure, page, tables, tidy
from proximo.report.curves import all_curves, max_points
from proximo.report.grouping import Section, sections_of
from proximo.report.read import read_runs
from proximo.storage.run_lookup import find_run

DEFAULT_FOLDER = Path("report")


@dataclass(frozen=True)
class Report:
    """The files of a report, its sections, and warnings about what it omits."""

    html: Path
    png: Path
    csv: Path
    sections: list[Section]
    warnings: list[str]

    def __repr__(self) -> str:
        return f"Report({str(self.html)!r}: {', '.join(section.environment for section in self.sections)})"

    def as_json(self) -> dict[str, Any]:
        """The files, the table of results and the probabilities of improvement."""
        files = {name: str(getattr(self, name)) for name in ("html", "png", "csv")}
        return {**files, **tables.as_json(self.sections), "warnings": self.warnings}


def write_report(texts: Sequence[str], runs_dir: Path = Path("runs"), by: Sequence[str] = (), out: Path | None = None) -> Report:
    """Write ``report.html``, ``report.png`` and ``report.csv``.

    Args:
        texts: The runs: paths, names, or ``last``. The parent folder of several seeds stands for all of them.
        runs_dir: Folder of all runs.
        by: Settings to group runs by; empty for all settings that differ, except the seed.
        out: Folder to write to; None for that of a single run, else ``report``.

    Returns:
        The files and what they contain.

    Raises:
        CheckpointError: A run is unknown, empty or damaged.
        ConfigError: A setting in ``by`` is unknown.
        RunDirectoryError: The folder cannot be written to.
    """
    runs = read_runs(texts, runs_dir)
    sections = sections_of(runs, by)
    folder = out or (find_run(texts[0], runs_dir)[0] if len(texts) == 1 else DEFAULT_FOLDER)
    report = Report(
        html=folder / "report.html",
        png=folder / "report.png",
        csv=folder / "report.csv",
        sections=sections,
        warnings=not_drawn(sections) + [note for section in sections for note in tables.notes(section)],
    )
    drawn = [all_curves(section, max_points(len(runs))) for section in sections]
    content = page.render(sections, drawn, datetime.now())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        report.html.write_text(content, encoding="utf-8")
        tidy.write_csv(report.csv, sections)
        figure.draw(report.png, sections, drawn)
    except OSError as error:
        raise RunDirectoryError(f"Cannot write the report to {folder} ({error.strerror}): choose another --out.") from error
    return report


def not_drawn(sections: Sequence[Section]) -> list[str]:
    """A warning if the image does not show all environments."""
    left = ", ".join(section.environment for section in sections[figure.MAX_SECTIONS :])
    return [f"report.png shows only the first {figure.MAX_SECTIONS} environments; the page also shows {left}."] if left else []
