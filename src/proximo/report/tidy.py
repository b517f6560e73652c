"""All metrics of the runs as one tidy table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from proximo.report.grouping import Section
from proximo.serialization import csv_cell

COLUMNS = ("environment", "run", "group", "seed", "step", "seconds", "metric", "value")


def lines(sections: Sequence[Section]) -> Iterator[str]:
    """One line per value, as measured, without thinning or averaging. ``seconds`` are empty if unknown. A failed run also has a line with
    the metric ``failed`` at the step that it reached, even if it measured nothing."""
    yield _line(COLUMNS)
    for section in sections:
        for group in section.groups:
            for run in group.runs:
                # Quoted once for each run, because half a million lines are common.
                before = _line((section.environment, run.label, group.label, run.seed)).rstrip("\n")
                if run.status == "failed":
                    yield f"{before},{run.step},,failed,1\n"
                for metric, series in run.series.items():
                    name = _line((metric,)).rstrip("\n")
                    for step, second, value in zip(
                        series.step.tolist(), series.seconds.tolist(), series.value.tolist(), strict=True
                    ):
                        yield f"{before},{step},{'' if second != second else round(second, 3)},{name},{value}\n"


def _line(cells: Sequence[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(map(csv_cell, cells))
    return buffer.getvalue()


def write_csv(path: Path, sections: Sequence[Section]) -> None:
    """Write the table to ``path`` in UTF-8, with a header line."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        file.writelines(lines(sections))
