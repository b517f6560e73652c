"""``proximo report``."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from proximo.cli import Parser, aligned, print_json, print_warnings
from proximo.rendering.display import is_headless


def run(options: argparse.Namespace) -> int:
    """Write the report, and print its paths and its table of results."""
    from proximo.report import write_report
    from proximo.report.page import cells

    by = [part for part in options.by.split(",") if part.strip()]
    report = write_report(options.run, Path(options.runs_dir), by, options.out)
    files = {name: str(getattr(report, name)) for name in ("html", "png", "csv")}
    print_warnings(report.warnings)
    if options.json:
        print_json({**files, **report.results, "warnings": report.warnings})
    else:
        rows = [{"environment": row["environment"], **cells(row)} for row in report.results["table"]]
        table = [[name.lower() for name in rows[0]], *(list(row.values()) for row in rows)]
        print("\n".join([*aligned(table), "", *files.values()]))
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
    parser.add_flag(
        "--by",
        "settings to group runs by, such as memory,gamma, or name (default: all settings that differ, except the seed)",
        "SETTING",
        default="",
    )
    parser.add_flag(
        "--out", "folder of report.html, .png and .csv (default: the folder of a single RUN, else report)", "FOLDER", type=Path
    )
    parser.add_shared("--runs-dir", "--json")
    parser.add_flag("--open", "open the page in a browser")
    return parser


def _open(page: Path) -> bool:
    """Open ``page`` in a browser, if there is a display: one in the terminal would block. Returns whether it worked."""
    if is_headless():
        return False
    return webbrowser.open(page.resolve().as_uri())
