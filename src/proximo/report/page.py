"""The page: one HTML file that loads nothing from elsewhere and runs only its own script."""

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

import proximo
from proximo.config import BY_NAME, text_of
from proximo.report.curves import Chart
from proximo.report.results import notes, summary
from proximo.report.runs import IRRELEVANT_SETTINGS, TRAINING, RunRecord, Section, differing
from proximo.serialization import JsonObject, json_object
from proximo.storage.run_directory import COMMAND, HISTOGRAMS, SYSTEM
from proximo.tracking.histograms import Histogram
from proximo.tracking.progress import amount, duration, number
from proximo.tracking.run_trackers import read_rows

RETURNS = "histograms/episode_returns"
BINS, SHADES = 40, 5
WIDTH, HEIGHT, LEFT, BELOW = 600, 220, 60, 22
"""Size of a picture of histograms, and of its margins with the labels, in pixels."""


class Markup(str):
    """Text that is already HTML."""


def escaped(content: Any) -> str:
    """``content`` as HTML: markup unchanged, None empty, anything else escaped as text."""
    if isinstance(content, Markup):
        return content
    return "" if content is None else html.escape(str(content))


def render(sections: Sequence[Section], charts: Sequence[list[Chart]], results: JsonObject) -> str:
    """Render the page of the ``sections``. Text of the user is escaped as HTML or JSON."""

    def numbers(array: np.ndarray) -> list[float | None]:
        """Whole numbers exactly, others with five digits; None for NaN."""
        if array.dtype.kind == "i":
            return array.tolist()
        return [None if math.isnan(value) else float(f"{value:.5g}") for value in array.tolist()]

    files = (Path(__file__).parent / name for name in ("page.html", "page.css", "chart.js"))
    page, style, script = (file.read_text(encoding="utf-8") for file in files)
    runs = [run for section in sections for run in section.runs]
    names = {run.label if len(runs) == 1 else run.settings["name"] for run in runs}
    what = names.pop() if len(names) == len(sections) == 1 else amount(len(runs), "run")
    title = f"{what} on {sections[0].environment if len(sections) == 1 else amount(len(sections), 'environment')}"
    links = [f'<a href="#section-{i}">{escaped(section.environment)}</a>' for i, section in enumerate(sections)]
    data = [{"groups": list(x.groups), "charts": found} for x, found in zip(sections, charts, strict=True)]
    overall = results["improvement_over_environments"]
    return Template(page).substitute(
        title=escaped(title),
        about=f"{amount(len(runs), 'run')}, {sum(run.step for run in runs):,} environment steps in total; "
        f"written {datetime.now():%Y-%m-%d %H:%M} by proximo {proximo.__version__}",
        contents=f"<nav>{''.join(links)}</nav>" if len(links) > 1 else "",
        sections="".join(_section(i, section, charts[i], results) for i, section in enumerate(sections)),
        overall=_improvements("Probability of improvement in all environments", overall),
        # The data must not contain the end of a script element.
        data=json.dumps(data, separators=(",", ":"), default=numbers).replace("<", "\\u003c"),
        style=style,
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _section(i: int, section: Section, charts: Sequence[Chart], results: JsonObject) -> str:
    name, runs = section.environment, section.runs
    table, pairs = ([row for row in results[kind] if row["environment"] == name] for kind in ("table", "improvement"))
    notices = [
        f"{escaped(run.label)}: {_status(run)} ({run.step:,} of {run.total_steps:,} steps). {escaped(run.why)}"
        for run in runs
        if run.status != "finished"
    ]
    mixed = {label: ", ".join(differing(found)) for label, found in section.groups.items()}
    remarks = notes(table) + [f"{label}: its runs differ in {names}." for label, names in mixed.items() if names]
    items = "".join(f"<li>{notice}</li>" for notice in [*notices, *map(escaped, remarks)])
    differences = _table([{"Group": row["group"], **row["settings"]} for row in table])
    return f"""<section id="section-{i}">
<h2>{escaped(name)}</h2>
<ul class="notices" tabindex="0">{items}</ul>
<div class="legend">{"".join(_chip(i, place, row) for place, row in enumerate(table))}</div>
<div class="charts">{"".join(_chart(i, place, chart) for place, chart in enumerate(charts))}</div>
<h3>Results{" (last training return)" if section.measure == TRAINING else ""}</h3>
{_table([cells(row) for row in table])}
{_improvements("Probability of improvement", pairs)}
{_histograms(section)}
{f"<div><h3>Settings that differ</h3>{differences}</div>" if table[0]["settings"] else ""}
<details><summary>All runs ({len(runs)})</summary>{_table([_run(section, *run) for run in section.labelled])}</details>
{_common_settings(section)}
</section>"""


def _status(run: RunRecord) -> Markup:
    share = "" if run.status in ("finished", "not started") else f" at {run.step / run.total_steps:.0%}"
    return Markup(f'<span class="{run.status.replace(" ", "-")}">{run.status}{share}</span>')


def _chip(section: int, place: int, row: JsonObject) -> str:
    """The button of a group."""
    return f"""<button type="button" class="chip" data-section="{section}" data-group="{place}" aria-pressed="true">
<svg width="22" height="8"><line x1="0" x2="22" y1="4" y2="4" class="line g{place % 8} d{place // 8 % 3}"></line></svg>
{escaped(row["group"])}<span class="soft"> · {amount(row["runs"], "run")}</span></button>"""


def _chart(section: int, place: int, chart: Chart) -> str:
    """An empty chart that the page's script fills."""
    return f"""<figure class="chart" data-section="{section}" data-chart="{place}">
<figcaption><b>{chart["title"]}</b><span>{chart["about"]}</span></figcaption>
<svg role="img" tabindex="0" aria-label="{chart["title"]}"></svg><div class="tip" hidden></div></figure>"""


def _table(rows: Sequence[JsonObject]) -> str:
    """A table whose columns have the names of the first row. Columns of numbers are right-aligned."""
    kinds = ["number" if str(cell)[:1] in "0123456789-–[" else "" for cell in rows[0].values()]

    def line(tag: str, row: Iterable[Any]) -> str:
        pairs = zip(row, kinds, strict=True)
        texts = (f'<{tag} class="{kind}">{escaped(cell)}</{tag}>' for cell, kind in pairs)
        return f"<tr>{''.join(texts)}</tr>"

    lines = "".join(line("td", row.values()) for row in rows)
    return f'<div class="scroll" tabindex="0"><table><thead>{line("th", rows[0])}</thead><tbody>{lines}</tbody></table></div>'


def cells(row: JsonObject) -> dict[str, str]:
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


def _improvements(title: str, pairs: Sequence[JsonObject]) -> str:
    rows = []
    for pair in pairs:
        over = f" in {pair['environments']} environments" if pair["environments"] > 1 else ""
        interval = ", ".join(f"{bound:.2f}" for bound in pair["ci95"])
        rows.append({"X > Y": f"{pair['x']} > {pair['y']}{over}", "P(X > Y)": f"{pair['probability']:.2f} [{interval}]"})
    return f"<div><h3>{title}</h3>{_table(rows)}</div>" if rows else ""


def _run(section: Section, label: str, run: RunRecord) -> JsonObject:
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


def _common_settings(section: Section) -> str:
    """All settings that the runs share; those that differ from the default come first."""
    omitted = IRRELEVANT_SETTINGS.union(differing(section.runs))
    defaults = {name: leaf.default for name, leaf in BY_NAME.items()}
    shared = {n: (value, defaults.get(n, "")) for n, value in section.runs[0].settings.items() if n not in omitted}
    changed = [name for name, (value, default) in shared.items() if value != default]
    texts = ((name, *map(text_of, shared[name])) for name in dict.fromkeys([*changed, *shared]))
    table = _table([{"Setting": name, "Value": value, "Default": default} for name, value, default in texts])
    count = f"{len(changed)} of {len(shared)} differ from the default"
    return f"<details><summary>Settings in common<span> ({count})</span></summary>{table}</details>"


def _histograms(section: Section) -> str:
    """A picture of the returns of episodes for each group that has recorded histograms."""
    pictures = ""
    for place, (label, runs) in enumerate(section.groups.items()):
        columns: dict[int, list[Histogram]] = {}
        for row in (row for run in runs for row in read_rows(run.path / HISTOGRAMS) if RETURNS in row):
            columns.setdefault(row["step"], []).append(Histogram.from_json(row[RETURNS]))
        pictures += _picture(place, label, columns) if columns else ""
    if not pictures:
        return ""
    about = "Share of the episodes by their return, with sampled actions. A stronger color means more."
    return f"""<div><h3>Returns of episodes</h3><p class="soft">{about}</p><div class="charts">{pictures}</div></div>"""


def _picture(place: int, label: str, columns: dict[int, list[Histogram]]) -> str:
    found = [h for column in columns.values() for h in column]
    steps, low, high = sorted(columns), min(h.low for h in found), max(h.high for h in found)
    counts = np.zeros((len(steps), BINS))
    for row, step in zip(counts, steps, strict=True):
        for h in columns[step]:
            row += np.histogram((h.edges[:-1] + h.edges[1:]) / 2, BINS, (low, high), weights=h.counts)[0]
    shade = np.ceil(SHADES * counts / counts.max(axis=1, keepdims=True))
    paths = ""
    for i in range(1, SHADES + 1):
        squares = "".join(f"M{x} {BINS - y - 1}h1v1h-1z" for x, y in np.argwhere(shade == i))
        paths += f'<path d="{squares}" fill-opacity="{i / SHADES}"></path>'
    size = f"translate({LEFT} 0) scale({(WIDTH - LEFT) / len(steps):.4f} {(HEIGHT - BELOW) / BINS:.4f})"
    return f"""<figure><figcaption><b>{escaped(label)}</b></figcaption>
<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Returns of {escaped(label)}">
<g transform="{size}" class="g{place % 8}">{paths}</g>
<text x="{LEFT - 6}" y="12" class="end">{high:.4g}</text>
<text x="{LEFT - 6}" y="{HEIGHT - BELOW}" class="end">{low:.4g}</text>
<text x="{LEFT}" y="{HEIGHT - 4}">{steps[0]:,}</text>
<text x="{WIDTH}" y="{HEIGHT - 4}" class="end">{steps[-1]:,} environment steps</text></svg></figure>"""
