"""The charts of a section: curves of runs and of groups, over environment steps and over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from proximo.report.grouping import Section
from proximo.report.read import EVALUATION, SUCCESS, TRAINING, Series
from proximo.report.statistics import interquartile_band

METRICS = {
    EVALUATION: ("Evaluation return", "mean return of greedy episodes on fixed seeds that training does not use"),
    TRAINING: ("Training return", "mean return of finished episodes, with sampled actions"),
    SUCCESS: ("Evaluation success", "share of greedy episodes that succeeded"),
    "rollout/success_rate": ("Training success", "share of finished episodes that succeeded"),
}
"""Title and description of each chart."""
AXES = ("step", "seconds")
MAX_POINTS, MIN_POINTS, MAX_TOTAL_POINTS = 240, 40, 8000
"""Points of a curve; of many runs, each curve has fewer, so that the page stays small."""
Chart = dict[str, Any]
"""``title``, ``about``, and for each axis its points ``x`` and its ``groups``. All curves of an axis have the same points, with NaN where
they have no value. A group has what ``interquartile_band`` returns, and ``lines`` with the ``name`` and ``y`` of each run."""


def charts_of(section: Section, runs: int) -> list[Chart]:
    """A chart for each metric that a run of the section has measured. The page has ``runs`` runs."""
    most = max(MIN_POINTS, min(MAX_POINTS, MAX_TOTAL_POINTS // runs))
    charts = []
    for metric, (title, about) in METRICS.items():
        groups = [[(run.label, run.series(metric)) for run in found] for found in section.groups.values()]
        groups = [[(name, series) for name, series in group if len(series.value)] for group in groups]
        if any(groups):
            axes = {axis: _curves(groups, axis, most) for axis in AXES}
            charts.append({"title": title, "about": about, **axes})
    return charts


def _curves(groups: list[list[tuple[str, Series]]], axis: str, most: int) -> dict[str, Any]:
    grid = common_grid([getattr(series, axis) for group in groups for _, series in group], most)
    found = []
    for group in groups:
        lines = [{"name": name, "y": on_grid(grid, getattr(series, axis), series.value)} for name, series in group]
        band = interquartile_band(np.reshape([line["y"] for line in lines], (-1, len(grid))))
        # Where fewer than half of the runs are left, the mean would jump whenever a curve ends.
        few = band["count"] < max(1, len(lines) / 2)
        shown = {name: np.where(few, np.nan, band[name]) for name in ("middle", "low", "high")}
        found.append({**band, **shown, "lines": lines})
    return {"x": grid, "groups": found}


def common_grid(x: Sequence[np.ndarray], most: int) -> np.ndarray:
    """All points of all curves, or if there are more than ``most``, as many equidistant points."""
    union = np.unique(np.concatenate(x))
    return union if len(union) <= most else np.linspace(union[0], union[-1], most).astype(union.dtype)


def on_grid(grid: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The mean of the values ``y`` after the previous and up to each point of ``grid``. Points without any are interpolated; before the
    first and after the last value, they are NaN."""
    place = np.searchsorted(grid, x)
    count, total = np.bincount(place, minlength=len(grid)), np.bincount(place, y, len(grid))
    found = count > 0
    return np.interp(grid, grid[found], total[found] / count[found], left=np.nan, right=np.nan)
