"""Histograms of the returns of episodes over the training, as one picture for each group."""

from __future__ import annotations

import numpy as np

from proximo.report.grouping import Section
from proximo.report.markup import Markup, tag
from proximo.report.read import RunRecord
from proximo.storage.run_directory import HISTOGRAMS
from proximo.tracking.histograms import Histogram
from proximo.tracking.json_lines import read_rows

NAME = "histograms/episode_returns"
BINS, SHADES = 40, 5
WIDTH, HEIGHT, LEFT, BELOW = 600, 220, 60, 22
"""Size of a picture, and of its margins with the labels, in pixels."""


def pictures(section: Section) -> Markup | None:
    """One picture for each group that has recorded histograms; None if none has."""
    drawn = (_picture(i, label, runs) for i, (label, runs) in enumerate(section.groups.items()))
    found = [picture for picture in drawn if picture is not None]
    about = "Share of the episodes by their return, with sampled actions. In each column, a stronger color means more."
    heading = tag("h3", "Returns of episodes"), tag("p", about, class_="soft")
    return tag("div", *heading, tag("div", *found, class_="charts")) if found else None


def _picture(place: int, label: str, runs: list[RunRecord]) -> Markup | None:
    columns: dict[int, list[Histogram]] = {}
    for run in runs:
        for row in read_rows(run.path / HISTOGRAMS):
            if NAME in row:
                columns.setdefault(row["step"], []).append(Histogram.from_json(row[NAME]))
    if not columns:
        return None
    found = [h for column in columns.values() for h in column]
    steps, low, high = sorted(columns), min(h.low for h in found), max(h.high for h in found)
    counts = np.zeros((len(steps), BINS))
    for row, step in zip(counts, steps, strict=True):
        for h in columns[step]:
            middles = (h.edges[:-1] + h.edges[1:]) / 2
            row += np.histogram(middles, BINS, (low, high), weights=h.counts)[0]
    shade = np.ceil(SHADES * counts / counts.max(axis=1, keepdims=True))
    cells = {i: "".join(f"M{x} {BINS - y - 1}h1v1h-1z" for x, y in np.argwhere(shade == i)) for i in range(1, SHADES + 1)}
    size = f"translate({LEFT} 0) scale({(WIDTH - LEFT) / len(steps):.4f} {(HEIGHT - BELOW) / BINS:.4f})"
    return tag(
        "figure",
        tag("figcaption", tag("b", label)),
        tag(
            "svg",
            tag(
                "g",
                *(tag("path", d=d, fill_opacity=i / SHADES) for i, d in cells.items()),
                transform=size,
                class_=f"g{place % 8}",
            ),
            tag("text", f"{high:.4g}", x=LEFT - 6, y=12, class_="end"),
            tag("text", f"{low:.4g}", x=LEFT - 6, y=HEIGHT - BELOW, class_="end"),
            tag("text", f"{steps[0]:,}", x=LEFT, y=HEIGHT - 4),
            tag("text", f"{steps[-1]:,} environment steps", x=WIDTH, y=HEIGHT - 4, class_="end"),
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            role="img",
            aria_label=f"Returns of {label}",
        ),
    )
