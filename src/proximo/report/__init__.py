"""Reports about one or many runs: an HTML page, a picture and a CSV table."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proximo.errors import RunDirectoryError, instead_of_os_errors
from proximo.report import figures, page
from proximo.report.curves import charts_of
from proximo.report.results import as_json, notes
from proximo.report.runs import Section, read_runs, sections_of
from proximo.serialization import JsonObject, csv_cell
from proximo.storage.run_lookup import find_run

COLUMNS = ("environment", "run", "group", "seed", "step", "seconds", "metric", "value")


@dataclass(frozen=True)
class Report:
    """The files of a report and what they contain."""

    html: Path
    png: Path
    csv: Path
    results: JsonObject
    """The table of results and the probabilities of improvement."""
    warnings: list[str]
    """How many runs without a result are left out or count as the worst."""

    def __repr__(self) -> str:
        environments = dict.fromkeys(row["environment"] for row in self.results["table"])
        return f"Report({str(self.html)!r}: {', '.join(environments)})"


def write_report(texts: Sequence[str], runs_dir: Path = Path("runs"), by: Sequence[str] = (), out: Path | None = None) -> Report:
    """Write ``report.html``, ``report.png`` and ``report.csv``.

    Args:
        texts: The runs: paths, names, or ``last``. The parent folder of several seeds stands for all of them.
        runs_dir: Folder of all runs.
        by: Settings to group runs by; empty for all settings that differ, except the seed.
        out: Folder to write to; None for the folder of a single run, else ``report``.

    Returns:
        The files and what they contain.

    Raises:
        CheckpointError: A run is unknown, empty or damaged.
        ConfigError: A setting in ``by`` is unknown.
        RunDirectoryError: The folder cannot be written to.
    """
    runs = read_runs(texts, runs_dir)
    sections = sections_of(runs, by)
    folder = out or (find_run(texts[0], runs_dir)[0] if len(texts) == 1 else Path("report"))
    results, charts = as_json(sections), [charts_of(section, len(runs)) for section in sections]
    paths = folder / "report.html", folder / "report.png", folder / "report.csv"
    report = Report(*paths, results, notes(results["table"]))
    with instead_of_os_errors(RunDirectoryError, f"Cannot write the report to {folder}", "choose another --out."):
        folder.mkdir(parents=True, exist_ok=True)
        report.html.write_text(page.render(sections, charts, results), encoding="utf-8")
        figures.draw(report.png, sections, charts)
        _write_csv(report.csv, sections)
    return report


def _write_csv(path: Path, sections: Sequence[Section]) -> None:
    """Write all metrics as one tidy table: one line per value, as measured, without thinning or averaging.

    A failed run also has a line with the metric ``failed`` at the step that it reached.
    """
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for environment, label, run in ((x.environment, *pair) for x in sections for pair in x.labelled):
            about = (*map(csv_cell, (environment, run.label, label)), run.settings["seed"])
            if run.status == "failed":
                writer.writerow((*about, run.step, None, "failed", 1))
            for row, seconds in zip(run.rows, run.seconds.round(3).tolist(), strict=True):
                where = (*about, row["step"], seconds)
                values = ((n, x) for n, x in row.items() if n != "step" and x is not None)
                writer.writerows((*where, csv_cell(name), value) for name, value in values)
