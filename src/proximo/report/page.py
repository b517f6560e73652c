"""The page: one HTML file that loads nothing from elsewhere and runs only its own script."""

import base64
import hashlib
import html
import json
import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

import proximo
from proximo.config import ENTRIES, LEAVES, text_of
from proximo.report.curves import Chart
from proximo.report.grouping import IRRELEVANT_SETTINGS, Section, differing
from proximo.report.read import TRAINING, RunRecord
from proximo.report.results import notes, summary
from proximo.serialization import json_object
from proximo.storage.run_directory import COMMAND, HISTOGRAMS, SYSTEM
from proximo.tracking.histograms import Histogram
from proximo.tracking.json_lines import read_rows
from proximo.tracking.progress import amount, duration, number

RETURNS = "histograms/episode_returns"
BINS, SHADES = 40, 5
WIDTH, HEIGHT, LEFT, BELOW = 600, 220, 60, 22
"""Size of a picture of histograms, and of its margins with the labels, in pixels."""


class Markup(str):
    """Text that is already HTML."""


def escaped(content: Any) -> Markup:
    """``content`` as HTML: markup unchanged, None empty, anything else escaped as text."""
    return content if isinstance(content, Markup) else Markup("" if content is None else html.escape(str(content)))


def tag(name: str, /, *content: Any, **attributes: Any) -> Markup:
    """An element. The attribute ``class_`` is named ``class``, ``data_x`` ``data-x``; None is omitted."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    pairs = "".join(f' {key}="{escaped(value)}"' for key, value in given.items())
    return Markup(f"<{name}{pairs}>{''.join(map(escaped, content))}</{name}>")


def render(sections: Sequence[Section], charts: Sequence[list[Chart]], results: dict[str, Any], written: datetime) -> str:
    """Render the page of the ``sections``. Text of the user is escaped as HTML or JSON."""

    def numbers(array: np.ndarray) -> list[float | None]:
        """Whole numbers exactly, others with five digits; None for NaN."""
        rounded = array.tolist() if array.dtype.kind == "i" else [float(f"{value:.5g}") for value in array.tolist()]
        return [None if math.isnan(value) else value for value in rounded]

    texts = ((Path(__file__).parent / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "chart.js"))
    page, style, script = texts
    runs = [run for section in sections for run in section.runs]
    names = list(dict.fromkeys(run.settings["name"] for run in runs))
    what = runs[0].label if len(runs) == 1 else names[0] if len(names) == 1 else f"{len(runs)} runs"
    title = f"{what} on {sections[0].environment}"
    links = [tag("a", section.environment, href=f"#section-{i}") for i, section in enumerate(sections)]
    data = [{"groups": list(section.groups), "charts": found} for section, found in zip(sections, charts, strict=True)]
    return Template(page).substitute(
        title=escaped(title if len(sections) == 1 else f"{len(runs)} runs on {len(sections)} environments"),
        about=f"{amount(len(runs), 'run')}, {sum(run.step for run in runs):,} environment steps in total; "
        f"written {written:%Y-%m-%d %H:%M} by proximo {proximo.__version__}",
        contents=tag("nav", *links) if len(links) > 1 else "",
        sections="".join(_section(i, section, charts[i], results) for i, section in enumerate(sections)),
        overall=_improvements("Probability of improvement in all environments", results["improvement_over_environments"]) or "",
        # The data must not contain the end of a script element.
        data=json.dumps(data, separators=(",", ":"), default=numbers).replace("<", "\\u003c"),
        style=style,
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _section(i: int, section: Section, charts: Sequence[Chart], results: dict[str, Any]) -> Markup:
    table, pairs = (
        [row for row in results[name] if row["environment"] == section.environment] for name in ("table", "improvement")
    )
    notices = [
        tag("li", f"{run.label}: ", _status(run), f" ({run.step:,} of {run.total_steps:,} steps). {run.why}")
        for run in section.runs
        if run.status != "finished"
    ]
    notices += [tag("li", note) for note in notes(table)]
    mixed = {label: ", ".join(differing(runs)) for label, runs in section.groups.items()}
    notices += [tag("li", f"{label}: its runs differ in {names}.") for label, names in mixed.items() if names]
    differences = [{"Group": row["group"], **row["settings"]} for row in table]
    return tag(
        "section",
        tag("h2", section.environment),
        tag("ul", *notices, class_="notices", tabindex=0),
        tag("div", *(_chip(i, place, row) for place, row in enumerate(table)), class_="legend"),
        tag("div", *(_chart(i, place, chart) for place, chart in enumerate(charts)), class_="charts"),
        tag("h3", "Results", " (last training return)" if section.measure == TRAINING else ""),
        _table([cells(row) for row in table]),
        _improvements("Probability of improvement", pairs),
        _histograms(section),
        tag("div", tag("h3", "Settings that differ"), _table(differences)) if table[0]["settings"] else None,
        tag("details", tag("summary", f"All runs ({len(section.runs)})"), _table([_run(section, *x) for x in section.labelled])),
        _common_settings(section),
        id=f"section-{i}",
    )


def _status(run: RunRecord) -> Markup:
    share = "" if run.status in ("finished", "not started") else f" at {run.step / run.total_steps:.0%}"
    return tag("span", f"{run.status}{share}", class_=run.status.replace(" ", "-"))


def _chip(section: int, place: int, row: dict[str, Any]) -> Markup:
    """The button of a group."""
    line = tag("line", x1=0, x2=22, y1=4, y2=4, class_=f"line g{place % 8} d{place // 8 % 3}")
    many = tag("span", f" · {amount(row['runs'], 'run')}", class_="soft")
    data = {"data_section": section, "data_group": place, "aria_pressed": "true"}
    return tag("button", tag("svg", line, width=22, height=8), row["group"], many, type="button", class_="chip", **data)


def _chart(section: int, place: int, chart: Chart) -> Markup:
    """An empty chart that the page's script fills."""
    caption = tag("figcaption", tag("b", chart["title"]), tag("span", chart["about"]))
    svg = tag("svg", role="img", tabindex=0, aria_label=chart["title"])
    return tag(
        "figure", caption, svg, tag("div", class_="tip", hidden=""), class_="chart", data_section=section, data_chart=place
    )


def _table(rows: Sequence[dict[str, Any]]) -> Markup:
    """A table whose columns have the names of the first row. Columns of numbers are right-aligned."""
    kinds = ["number" if str(cell)[:1] in "0123456789-–[" else None for cell in rows[0].values()]
    head = tag("tr", *(tag("th", name, class_=kind) for name, kind in zip(rows[0], kinds, strict=True)))
    lines = [tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row.values(), kinds, strict=True))) for row in rows]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *lines)), class_="scroll", tabindex=0)


def cells(row: dict[str, Any]) -> dict[str, str]:
    """A row of results as text, by the names of the columns."""
    others = ", ".join(f"{count} {status}" for status, count in row["status"].items() if status != "finished")
    without_interval = "–" if row["final"]["iqm"] is None else "one run"
    return {
        "Group": row["group"],
        "Runs": f"{row['runs']}{f' ({others})' if others else ''}",
        "Final": number(row["final"]["iqm"]),
        "95 % interval": f"[{', '.join(map(number, row['final']['ci95']))}]" if row["final"]["ci95"] else without_interval,
        "Best": number(row["best"]["iqm"]),
        "Success": "–" if row["success_rate"] is None else f"{row['success_rate']:.1%}",
        "Steps": f"{row['steps']:,}",
        "Time": "–" if row["seconds"] is None else duration(row["seconds"]),
        "Steps/s": number(row["steps_per_second"]),
    }


def _improvements(title: str, pairs: Sequence[dict[str, Any]]) -> Markup | None:
    rows = []
    for pair in pairs:
        over = f" in {pair['environments']} environments" if pair["environments"] > 1 else ""
        interval = ", ".join(f"{bound:.2f}" for bound in pair["ci95"])
        rows.append({"X > Y": f"{pair['x']} > {pair['y']}{over}", "P(X > Y)": f"{pair['probability']:.2f} [{interval}]"})
    return tag("div", tag("h3", title), _table(rows)) if rows else None


def _run(section: Section, label: str, run: RunRecord) -> dict[str, Any]:
    system, command = {"versions": {}, **json_object(run.path / SYSTEM)}, run.path / COMMAND
    scores = cells(summary(section, run.label, [run]))
    return {
        "Run": run.label,
        "Group": label,
        "Seed": run.settings["seed"],
        "Status": _status(run),
        **{name: scores[name] for name in ("Final", "Best", "Success", "Steps", "Time", "Steps/s")},
        "Started (UTC)": system.get("started", "")[:19].replace("T", " "),
        "Processor": system.get("processor"),
        "Versions": ", ".join(f"{name} {system['versions'].get(name, '–')}" for name in ("proximo", "jax")),
        "Command": command.read_text(encoding="utf-8").partition("\n")[0] if command.is_file() else "",
    }


def _common_settings(section: Section) -> Markup:
    """All settings that the runs share; those that differ from the default come first."""
    omitted = IRRELEVANT_SETTINGS.union(differing(section.runs))
    defaults = {name: leaf.default for name, leaf in (LEAVES | ENTRIES).items()}
    shared = {n: (value, defaults.get(n, "")) for n, value in section.runs[0].settings.items() if n not in omitted}
    changed = [name for name, (value, default) in shared.items() if value != default]
    texts = ((name, *map(text_of, shared[name])) for name in dict.fromkeys([*changed, *shared]))
    rows = [{"Setting": name, "Value": value, "Default": default} for name, value, default in texts]
    count = tag("span", f" ({len(changed)} of {len(shared)} differ from the default)")
    return tag("details", tag("summary", "Settings in common", count), _table(rows))


def _histograms(section: Section) -> Markup | None:
    """A picture of the returns of episodes for each group that has recorded histograms; None without any."""
    pictures = []
    for place, (label, runs) in enumerate(section.groups.items()):
        columns: dict[int, list[Histogram]] = {}
        for row in (row for run in runs for row in read_rows(run.path / HISTOGRAMS) if RETURNS in row):
            columns.setdefault(row["step"], []).append(Histogram.from_json(row[RETURNS]))
        pictures += [_picture(place, label, columns)] if columns else []
    about = "Share of the episodes by their return, with sampled actions. A stronger color means more."
    heading = tag("h3", "Returns of episodes"), tag("p", about, class_="soft")
    return tag("div", *heading, tag("div", *pictures, class_="charts")) if pictures else None


def _picture(place: int, label: str, columns: dict[int, list[Histogram]]) -> Markup:
    found = [h for column in columns.values() for h in column]
    steps, low, high = sorted(columns), min(h.low for h in found), max(h.high for h in found)
    counts = np.zeros((len(steps), BINS))
    for row, step in zip(counts, steps, strict=True):
        for h in columns[step]:
            row += np.histogram((h.edges[:-1] + h.edges[1:]) / 2, BINS, (low, high), weights=h.counts)[0]
    shade = np.ceil(SHADES * counts / counts.max(axis=1, keepdims=True))
    squares = ("".join(f"M{x} {BINS - y - 1}h1v1h-1z" for x, y in np.argwhere(shade == i + 1)) for i in range(SHADES))
    paths = [tag("path", d=d, fill_opacity=(i + 1) / SHADES) for i, d in enumerate(squares)]
    size = f"translate({LEFT} 0) scale({(WIDTH - LEFT) / len(steps):.4f} {(HEIGHT - BELOW) / BINS:.4f})"
    drawn = (
        tag("g", *paths, transform=size, class_=f"g{place % 8}"),
        tag("text", f"{high:.4g}", x=LEFT - 6, y=12, class_="end"),
        tag("text", f"{low:.4g}", x=LEFT - 6, y=HEIGHT - BELOW, class_="end"),
        tag("text", f"{steps[0]:,}", x=LEFT, y=HEIGHT - 4),
        tag("text", f"{steps[-1]:,} environment steps", x=WIDTH, y=HEIGHT - 4, class_="end"),
    )
    svg = tag("svg", *drawn, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"Returns of {label}")
    return tag("figure", tag("figcaption", tag("b", label)), svg)
