"""The page: one HTML file that loads nothing from elsewhere and runs only its own script."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import proximo
from proximo.report import episode_returns, panels
from proximo.report.curves import Curves, Metric, chart_data
from proximo.report.grouping import Section
from proximo.report.markup import Markup, tag
from proximo.report.tables import overall_improvements

_FOLDER = Path(__file__).parent
Drawn = dict[Metric, list[Curves]]


def render(sections: Sequence[Section], drawn: Sequence[Drawn], written: datetime) -> str:
    """Render the page. ``drawn`` has one entry for each section. Text of the user is escaped as HTML or JSON."""
    data = [
        {
            "groups": [group.label for group in section.groups],
            "charts": [chart_data(metric, found) for metric, found in curves.items()],
        }
        for section, curves in zip(sections, drawn, strict=True)
    ]
    bodies = [_section(i, section, list(drawn[i])) for i, section in enumerate(sections)]
    title = _title(sections)
    script = (_FOLDER / "chart.js").read_text(encoding="utf-8") + (_FOLDER / "hover.js").read_text(encoding="utf-8")
    payload = json.dumps({"sections": data}, separators=(",", ":"), allow_nan=False)
    page = tag(
        "html",
        _head(title, script),
        tag(
            "body",
            tag("h1", title),
            tag("p", _subtitle(sections, written), class_="soft"),
            _contents(sections),
            _axis_choice(),
            *bodies,
            _overall(sections),
            tag("h2", "How to read this"),
            *(tag("p", text) for text in READING),
            # The data must not contain the end of a script element.
            tag("script", Markup(payload.replace("<", "\\u003c")), type="application/json", id="data"),
            tag("script", Markup(script)),
        ),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{page}\n"


READING = (
    "Each thin line is one run (one seed). The thick line is the interquartile mean of a group of runs: the mean of the middle half, "
    "which a single lucky or failed seed does not change. With fewer than four runs it is the mean.",
    "Bands and brackets are 95 % confidence intervals from a stratified percentile bootstrap over runs with 2,000 resamples (Agarwal et "
    "al. 2021, arXiv:2108.13264). With few runs, the intervals are too narrow.",
    "A curve begins at the first and ends at the last measurement of its run. The mean of a group is drawn where at least half of its "
    "runs have data. Each point of a long curve is the mean of several measurements.",
    "P(X > Y) is the probability that a run of X ends with a higher return than a run of Y; ties count half. An interval that contains "
    "0.5 shows no clear difference.",
    "Hover over a chart or touch it to read values. Click the name of a group to hide or show it.",
)


def _head(title: str, script: str) -> Markup:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        # If injected markup ever passed the escaping, the browser would still run and load only what was written here.
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup((_FOLDER / "page.css").read_text(encoding="utf-8"))),
    )


def _title(sections: Sequence[Section]) -> str:
    runs = [run for section in sections for run in section.runs]
    names = list(dict.fromkeys(run.name for run in runs))
    if len(runs) == 1:
        return f"{runs[0].label} on {runs[0].environment}"
    if len(names) == 1 and len(sections) == 1:
        return f"{names[0]} on {sections[0].environment}"
    environments = f"{len(sections)} environments" if len(sections) > 1 else sections[0].environment
    return f"{len(runs)} runs on {environments}"


def _subtitle(sections: Sequence[Section], written: datetime) -> str:
    runs = [run for section in sections for run in section.runs]
    steps = sum(run.step for run in runs)
    many = f"{len(runs)} runs" if len(runs) > 1 else "1 run"
    return f"{many}, {steps:,} environment steps in total; written {written:%Y-%m-%d %H:%M} by proximo {proximo.__version__}"


def _contents(sections: Sequence[Section]) -> Markup | None:
    if len(sections) < 2:
        return None
    return tag("nav", [[tag("a", section.environment, href=f"#section-{i}"), " "] for i, section in enumerate(sections)])


def _axis_choice() -> Markup:
    choices = [tag("span", "Horizontal axis:", class_="soft")]
    for axis, text in (("step", "environment steps"), ("seconds", "wall time")):
        choices.append(tag("label", tag("input", type="radio", name="axis", value=axis, checked=axis == "step"), f" {text}"))
    return tag("div", *choices, class_="axes")


def _section(i: int, section: Section, metrics: list[Metric]) -> Markup:
    charts = [panels.chart(i, place, metric) for place, metric in enumerate(metrics)]
    return tag(
        "section",
        tag("h2", section.environment),
        panels.notices(section),
        panels.legend(i, section),
        tag("div", *charts, class_="charts"),
        tag("h3", "Results"),
        panels.results(section),
        panels.improvement(section),
        episode_returns.pictures(section),
        panels.differences(section),
        panels.runs(section),
        panels.settings(section),
        id=f"section-{i}",
    )


def _overall(sections: Sequence[Section]) -> Markup | None:
    found = overall_improvements(sections)
    if not found:
        return None
    return Markup(tag("h2", "All environments together") + panels.improvement_rows(found))
