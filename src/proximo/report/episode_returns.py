"""Histograms of the returns of episodes over the training, as one picture for each group."""

from __future__ import annotations

import numpy as np

from proximo.report.grouping import Group, Section
from proximo.report.markup import Markup, tag
from proximo.storage.run_directory import HISTOGRAMS
from proximo.tracking.histograms import Histogram
from proximo.tracking.json_lines import read_rows

NAME = "histograms/episode_returns"
BINS, SHADES = 40, 5
WIDTH, HEIGHT, LEFT, BELOW = 600, 220, 60, 22
"""Size of a picture, and of its margins with the labels, in pixels."""


def pictures(section: Section) -> Markup | None:
    """One picture for each group that has recorded histograms; None if none has."""
    found = [figure for place, group in enumerate(section.groups) if (figure := _picture(place, group))]
    about = tag(
        "p",
        "Share of the episodes by their return, with sampled actions. In each column, darker means more episodes.",
        class_="soft",
    )
    return Markup(tag("h3", "Returns of episodes") + about + tag("div", *found, class_="charts")) if found else None


def shares(histograms: dict[int, list[Histogram]], low: float, high: float) -> np.ndarray:
    """The share of the episodes in each of ``BINS`` bins from ``low`` to ``high``: one row for each step."""
    counts = np.zeros((len(histograms), BINS))
    for row, found in zip(counts, histograms.values(), strict=True):
        for h in found:
            bins = ((h.edges[:-1] + h.edges[1:]) / 2 - low) / (high - low) * BINS
            np.add.at(row, np.clip(bins.astype(int), 0, BINS - 1), h.counts)
    return counts / counts.sum(axis=1, keepdims=True)


def _picture(place: int, group: Group) -> Markup | None:
    histograms: dict[int, list[Histogram]] = {}
    for row in (row for run in group.runs for row in read_rows(run.path / HISTOGRAMS) if NAME in row):
        histograms.setdefault(row["step"], []).append(Histogram.from_json(row[NAME]))
    if not histograms:
        return None
    steps, every = sorted(histograms), [h for found in histograms.values() for h in found]
    low, high = min(h.low for h in every), max(h.high for h in every)
    share = shares({step: histograms[step] for step in steps}, low, high)
    shade = np.ceil(SHADES * share / share.max(axis=1, keepdims=True)).astype(int)
    paths = [
        tag("path", d="".join(f"M{x} {BINS - y - 1}h1v1h-1z" for x, y in np.argwhere(shade == i)), fill_opacity=i / SHADES)
        for i in range(1, SHADES + 1)
    ]
    size = f"translate({LEFT} 0) scale({(WIDTH - LEFT) / len(steps):.4f} {(HEIGHT - BELOW) / BINS:.4f})"
    labels = [
        tag("text", f"{high:.4g}", x=LEFT - 6, y=12, class_="end"),
        tag("text", f"{low:.4g}", x=LEFT - 6, y=HEIGHT - BELOW, class_="end"),
        tag("text", f"{steps[0]:,}", x=LEFT, y=HEIGHT - 4),
        tag("text", f"{steps[-1]:,} environment steps", x=WIDTH, y=HEIGHT - 4, class_="end"),
    ]
    cells = tag("g", *paths, transform=size, fill="currentColor", class_=f"g{place % 8}")
    picture = tag("svg", cells, *labels, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"Returns of {group.label}")
    return tag("figure", tag("figcaption", tag("b", group.label)), picture)
