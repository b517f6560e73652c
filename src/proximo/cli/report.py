"""``proximo report``."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Any

from proximo.cli import Parser, aligned, print_json, print_warnings


def run(arguments: list[str]) -> int:
    """Write the report, and print its paths and its table of results."""
    options = make_parser().parse_args(arguments)

    from proximo.report import write_report

    by = [part for part in options.by.split(",") if part.strip()]
    report = write_report(options.run, Path(options.runs_dir), by, options.out)
    print_warnings(report.warnings)
    found = report.as_json()
    if options.json:
        print_json(found)
    else:
        print("\n".join([*_table(found["table"]), "", *(str(path) for path in (report.html, report.png, report.csv))]))
    if options.open and not _open(report.html):
        print_warnings([f"no browser was found to open {report.html}."])
    return 0


def make_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="proximo report",
        description="Write a page, a picture and a table of runs: learning curves with intervals, results, settings.",
    )
    parser.add_argument("run", nargs="+", metavar="RUN", help="a path, a name or last; the parent folder of several seeds")
    parser.add_argument(
        "--by",
        default="",
        metavar="SETTING",
        help="settings to group runs by, such as memory,gamma, or name (default: all settings that differ, except the seed)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="folder of report.html, .png and .csv (default: that of a single RUN, else report)",
    )
    parser.add_argument("--runs-dir", default="runs", metavar="FOLDER", help="folder of all runs (default runs)")
    parser.add_argument("--json", action="store_true", help="print the final table as one JSON object")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    return parser


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """The final table as lines."""
    from proximo.report.panels import duration, interval, number

    lines = [("environment", "group", "runs", "final", "95 % interval", "best", "steps", "time", "steps/s")]
    for row in rows:
        final, best = row["final"], row["best"]
        low_high = interval(final["ci95"]) if final["iqm"] is not None else "–"
        reached = (_counts(row["status"]), number(final["iqm"]), low_high, number(best["iqm"]))
        pace = (f"{row['steps']:,}", duration(row["seconds"]), number(row["steps_per_second"]))
        lines.append((row["environment"], row["group"], *reached, *pace))
    return aligned(lines)


def _counts(statuses: dict[str, int]) -> str:
    """``4``, or ``4 (1 failed)`` if not all have finished."""
    others = [f"{count} {status}" for status, count in statuses.items() if status != "finished"]
    return f"{sum(statuses.values())}" + (f" ({', '.join(others)})" if others else "")


def _open(page: Path) -> bool:
    """Open ``page`` in a browser. Returns whether that worked. Without a display, none is tried: one in the terminal would block."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    return webbrowser.open(page.resolve().as_uri())
