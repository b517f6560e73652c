"""From what a user names to the files of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from proximo.errors import RunDirectoryError
from proximo.report import figure, page, tables, tidy
from proximo.report.clips import last_clips
from proximo.report.curves import all_curves, most_points
from proximo.report.grouping import Section, sections_of
from proximo.report.read import read_runs
from proximo.run.directory import resolve

DEFAULT_FOLDER = Path("report")


@dataclass(frozen=True)
class Report:
    """What was written, what it is about, and what was left out."""

    html: Path
    png: Path
    csv: Path
    sections: list[Section]
    warnings: list[str]

    def as_json(self) -> dict[str, Any]:
        """The files, the final table and the probabilities of improvement."""
        files = {name: str(getattr(self, name)) for name in ("html", "png", "csv")}
        return {**files, **tables.as_json(self.sections), "warnings": self.warnings}


def write_report(texts: Sequence[str], runs_dir: Path = Path("runs"), by: Sequence[str] = (), out: Path | None = None) -> Report:
    """Write ``report.html``, ``report.png`` and ``report.csv`` about the runs that ``texts`` mean (paths, names, ``last``).

    ``by``: settings that part the groups; empty: all that differ. ``out``: the folder; None: the run's own where there is one, else
    ``report``. Raises ``CheckpointError`` for a run that is unknown, empty or damaged, ``ConfigError`` for an unknown setting,
    ``RunDirectoryError`` where the folder cannot be written to.
    """
    runs = read_runs(texts, runs_dir)
    sections = sections_of(runs, by)
    folder = out or (resolve(texts[0], runs_dir)[0] if len(texts) == 1 else DEFAULT_FOLDER)
    clips = last_clips(sections)
    report = Report(
        html=folder / "report.html",
        png=folder / "report.png",
        csv=folder / "report.csv",
        sections=sections,
        warnings=[clip.says for found in clips for clip in found if clip.content is None]
        + not_drawn(sections)
        + [note for section in sections for note in tables.notes(section)],
    )
    drawn = [all_curves(section, most_points(len(runs))) for section in sections]
    content = page.render(sections, drawn, clips, datetime.now())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        report.html.write_text(content, encoding="utf-8")
        tidy.write_csv(report.csv, sections)
        figure.draw(report.png, sections, drawn)
    except OSError as error:
        raise RunDirectoryError(f"Cannot write the report into {folder} ({error.strerror}): choose another --out.") from error
    return report


def not_drawn(sections: Sequence[Section]) -> list[str]:
    """A sentence where the picture has not all environments."""
    left = [section.environment for section in sections[figure.MOST_SECTIONS :]]
    return [f"report.png has the first {figure.MOST_SECTIONS} environments; the page has {', '.join(left)} too."] if left else []
