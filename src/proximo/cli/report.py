"""Write a page, a picture and a table of runs: learning curves with intervals, results, settings."""

import webbrowser

from proximo.cli import Options, Parser, aligned, print_json, print_warnings
from proximo.rendering.window import is_headless


def make_parser() -> Parser:
    parser = Parser("report", __doc__)
    parser.add("run", "a path, a name or last; the parent folder of several seeds", "RUN", nargs="+")
    by = "settings to group runs by, such as memory,gamma, or name (default: all settings that differ, except the seed)"
    parser.add("--by", by, "SETTING", default="")
    out = "folder of report.html, .png and .csv (default: the folder of a single RUN, else report)"
    parser.add("--out", out, "FOLDER")
    parser.add_shared("--runs-dir", "--json")
    parser.add("--open", "open the page in a browser")
    return parser


def run(options: Options) -> int:
    from proximo.report import write_report
    from proximo.report.page import cells

    by = [part for part in options.by.split(",") if part.strip()]
    report = write_report(options.run, options.runs_dir, by, options.out)
    files = {name: str(getattr(report, name)) for name in ("html", "png", "csv")}
    print_warnings(report.warnings)
    if options.json:
        print_json({**files, **report.results, "warnings": report.warnings})
    else:
        rows = [{"environment": row["environment"], **cells(row)} for row in report.results["table"]]
        table = [[name.lower() for name in rows[0]], *(list(row.values()) for row in rows)]
        print("\n".join([*aligned(table), "", *files.values()]))
    # Without a display, a browser would open in the terminal and block.
    if options.open and (is_headless() or not webbrowser.open(report.html.resolve().as_uri())):
        print_warnings([f"no browser was found to open {report.html}."])
    return 0
