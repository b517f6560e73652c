"""The parts of a section of the page: empty charts for the script, tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proximo.config import LEAVES, text_of
from proximo.report.curves import TRAINING, Metric
from proximo.report.grouping import IRRELEVANT_SETTINGS, Section
from proximo.report.markup import Markup, tag
from proximo.report.read import RunRecord
from proximo.report.tables import Improvement, Score, best_score, final_score, final_table, improvements, measure_of, speed

MAX_NOTICES = 20


def number(value: float | None) -> str:
    """A number for a table, with about four digits."""
    if value is None or value != value:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def duration(seconds: float | None) -> str:
    """``41 s``, ``3:05 min``, ``2:10 h``."""
    if seconds is None or seconds != seconds:
        return "–"
    whole = round(seconds)
    if whole < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole // 60 % 60:02d} h"


def interval(ci95: list[float] | None) -> str:
    """``[low, high]``, or the reason why there is no interval."""
    return f"[{number(ci95[0])}, {number(ci95[1])}]" if ci95 else "one run"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Sequence[int], stacks: bool = False) -> Markup:
    """A table; the columns in ``numbers`` are right-aligned. On a narrow screen it scrolls, or with ``stacks`` each row becomes a list."""
    kinds = ["number" if i in numbers else None for i in range(len(head))]
    cells = [
        tag("tr", *(tag("td", cell, class_=kind, data_name=name) for name, cell, kind in zip(head, row, kinds, strict=True)))
        for row in rows
    ]
    names = tag("tr", *(tag("th", name, class_=kind) for name, kind in zip(head, kinds, strict=True)))
    whole = tag("table", tag("thead", names), tag("tbody", *cells), class_="stacks" if stacks else None)
    return tag("div", whole, class_="scroll", tabindex="0")


def status_of(run: RunRecord) -> Markup:
    """The status of a run, with its progress if it is not finished."""
    share = f" at {run.step / run.total_steps:.0%}" if run.status in ("running", "interrupted", "stopped", "failed") else ""
    return tag("span", f"{run.status}{share}", class_=run.status.replace(" ", "-"))


def notices(section: Section) -> Markup | None:
    """One line for each run that is not finished."""
    lines = [
        tag("li", f"{run.label}: ", status_of(run), f" ({run.step:,} of {run.total_steps:,} steps). {run.why}")
        for run in section.runs
        if run.status != "finished"
    ]
    if len(lines) > MAX_NOTICES:
        lines[MAX_NOTICES:] = [tag("li", f"… and {len(lines) - MAX_NOTICES} more; the table of all runs lists each.")]
    return tag("ul", *lines, class_="notices") if lines else None


def legend(i: int, section: Section) -> Markup:
    """A button for each group."""
    chips = []
    for place, group in enumerate(section.groups):
        line = tag("line", x1="0", x2="22", y1="4", y2="4", class_=f"line g{place % 8} d{place // 8 % 3}")
        sign = tag("svg", line, width="22", height="8", aria_hidden="true")
        many = tag("span", f" · {len(group.runs)} runs", class_="soft") if len(group.runs) > 1 else None
        state = {"class_": "chip", "type": "button", "aria_pressed": "true", "data_section": i, "data_group": place}
        chips.append(tag("button", sign, group.label, many, **state))
    return tag("div", *chips, class_="legend")


def chart(section: int, place: int, metric: Metric) -> Markup:
    """An empty chart that the page's script fills."""
    return tag(
        "figure",
        tag("figcaption", tag("b", metric.title), tag("br"), tag("span", metric.about)),
        tag("svg", role="img", tabindex="0", aria_label=metric.title),
        tag("div", class_="tip", hidden=True),
        class_="chart",
        data_section=section,
        data_chart=place,
    )


def _score(score: Score) -> Any:
    return "–" if score.iqm is None else [number(score.iqm), tag("small", interval(score.ci95))]


def results(section: Section) -> Markup:
    """The table of results."""
    training = measure_of(section) == TRAINING
    head = ["Group", "Runs", "Last training return" if training else "Final evaluation", "Best evaluation"]
    head += ["Success", "Steps", "Time", "Steps/s"]
    rows = []
    for place, row in enumerate(final_table(section)):
        counts = ", ".join(f"{count} {status}" for status, count in row.statuses.items())
        rate = "–" if row.success_rate is None else f"{row.success_rate:.1%}"
        name = [tag("i", class_=f"sign g{place % 8}"), row.group.label]
        if row.group.mixed:
            name.append(tag("small", f"different values of {', '.join(row.group.mixed)}"))
        pace = (f"{row.steps:,}", duration(row.seconds), number(row.steps_per_second))
        counted = [len(row.group.runs), tag("small", counts)]
        if row.failed:
            counted.append(tag("small", f"{row.failed} failed without a result; each counts as {number(row.worst)}"))
        if row.left_out:
            counted.append(tag("small", f"{row.left_out} without a result, not counted"))
        rows.append([name, counted, _score(row.final), _score(row.best), rate, *pace])
    return table(head, rows, range(2, 8), stacks=True)


def improvement(section: Section) -> Markup | None:
    """The probability of improvement between groups, if two have enough runs."""
    found = improvements(section)
    return Markup(tag("h3", "Probability of improvement") + improvement_rows(found)) if found else None


def improvement_rows(found: Sequence[Improvement]) -> Markup:
    """One bar for each pair."""
    rows = []
    for pair in found:
        low, high = pair.ci95
        bar = tag("i", class_="span", style=f"left:{low:.1%};width:{high - low:.1%}")
        track = tag(
            "div", tag("i", class_="half"), bar, tag("i", class_="point", style=f"left:{pair.probability:.1%}"), class_="track"
        )
        over = f", {pair.environments} environments" if pair.environments > 1 else ""
        figure = f"{pair.probability:.2f} [{low:.2f}, {high:.2f}]"
        names = tag("div", f"{pair.x} > {pair.y}{over}", class_="names")
        rows.append(tag("div", names, track, tag("div", figure), class_="versus"))
    return tag("div", *rows)


def differences(section: Section) -> Markup | None:
    """The settings that differ between groups."""
    if not section.differing:
        return None
    rows = [[group.label, *(group.setting(name) for name in section.differing)] for group in section.groups]
    return Markup(tag("h3", "Settings that differ") + table(["Group", *section.differing], rows, (), stacks=True))


def runs(section: Section) -> Markup:
    """The table of all runs."""
    measure = measure_of(section)
    columns = {"started": "Started (UTC)", "processor": "Processor", "versions": "Versions", "command": "Command"}
    rows = [
        [
            *(run.label, group.label, run.seed, status_of(run), number(final_score(run, measure)), number(best_score(run))),
            *(f"{run.step:,}", duration(run.seconds), number(speed(run))),
            *(run.start_info.get(name, "–") for name in columns),
        ]
        for group in section.groups
        for run in group.runs
    ]
    head = ["Run", "Group", "Seed", "Status", "Final", "Best", "Steps", "Time", "Steps/s", *columns.values()]
    return tag("details", tag("summary", f"All runs ({len(rows)})"), table(head, rows, (2, 4, 5, 6, 7, 8)))


def settings(section: Section) -> Markup:
    """All settings that the runs share; those that differ from the default come first."""
    left_out = IRRELEVANT_SETTINGS.union(section.differing)
    shared = {name: value for name, value in section.runs[0].settings.items() if name not in left_out}
    changed = {name: value for name, value in shared.items() if name not in LEAVES or value != LEAVES[name].default}
    rows = [
        [name, text_of(value) or "–", text_of(LEAVES[name].default) or "–" if name in LEAVES else "–"]
        for name, value in {**changed, **shared}.items()
    ]
    count = tag("span", f" ({len(changed)} of {len(shared)} differ from the default)")
    return tag("details", tag("summary", "Settings in common", count), table(["Setting", "Value", "Default"], rows, ()))
