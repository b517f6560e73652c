"""The charts of a section: curves of runs and of groups, over environment steps and over time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from proximo.report.results import interquartile_band
from proximo.report.runs import EVALUATION, SUCCESS, TRAINING, Section

METRICS = {
    EVALUATION: ("Evaluation return", "mean return of greedy episodes on fixed seeds that training does not use"),
    TRAINING: ("Training return", "mean return of finished episodes, with sampled actions"),
    SUCCESS: ("Evaluation success", "share of greedy episodes that succeeded"),
    "rollout/success_rate": ("Training success", "share of finished episodes that succeeded"),
}
"""Title and description of each chart."""
MAX_POINTS, MIN_POINTS, MAX_TOTAL_POINTS = 240, 40, 8000
"""Points of a curve; of many runs, each curve has fewer, so that the page stays small."""
Chart = dict[str, Any]
"""``title``, ``about``, and for each axis the points ``x`` of all curves and the ``groups``. A group has what
``interquartile_band`` returns, and ``lines`` with the ``name`` and ``y`` of each run, NaN where it has no value."""


def charts_of(section: Section, runs: int) -> list[Chart]:
    """A chart for each metric that a run of the section has measured. The page has ``runs`` runs."""
    most = max(MIN_POINTS, min(MAX_POINTS, MAX_TOTAL_POINTS // runs))
    charts = []
    for metric, (title, about) in METRICS.items():
        groups = [[(run.label, x) for run in found if len((x := run.series(metric)).value)] for found in section.groups.values()]
        if not any(groups):
            continue
        chart: Chart = {"title": title, "about": about}
        for axis in ("step", "seconds"):
            curves = [[(name, getattr(x, axis), x.value) for name, x in group] for group in groups]
            grid = common_grid([x for group in curves for _, x, _ in group], most)
            lines = [[{"name": name, "y": on_grid(grid, x, y)} for name, x, y in group] for group in curves]
            chart[axis] = {"x": grid, "groups": [_group(found, len(grid)) for found in lines]}
        charts.append(chart)
    return charts


def _group(lines: list[Chart], points: int) -> Chart:
    band = interquartile_band(np.reshape([line["y"] for line in lines], (-1, points)))
    # Where fewer than half of the runs are left, the mean would jump whenever a curve ends.
    few = band["count"] < max(1, len(lines) / 2)
    shown = {name: np.where(few, np.nan, band[name]) for name in ("middle", "low", "high")}
    return {**band, **shown, "lines": lines}


def common_grid(x: Sequence[np.ndarray], most: int) -> np.ndarray:
    """All points of all curves, or if there are more than ``most``, as many equidistant points."""
    union = np.unique(np.concatenate(x))
    return union if len(union) <= most else np.linspace(union[0], union[-1], most).astype(union.dtype)


def on_grid(grid: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """At each point of ``grid``, the mean of the values ``y`` since the previous point. Points without values
    are interpolated; before the first and after the last value, they are NaN."""
    place = np.searchsorted(grid, x)
    count, total = np.bincount(place, minlength=len(grid)), np.bincount(place, y, len(grid))
    found = count > 0
    return np.interp(grid, grid[found], total[found] / count[found], left=np.nan, right=np.nan)
