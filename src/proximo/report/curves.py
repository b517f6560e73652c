"""Curves for the charts: thinned, over environment steps and over time, with the band of each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from proximo.report.grouping import Group, Section
from proximo.report.read import EVALUATION, RunRecord
from proximo.report.statistics import interquartile_band

TRAINING = "rollout/return_mean"
MAX_POINTS, MIN_POINTS, MAX_TOTAL_POINTS = 300, 40, 8000
MAX_IN_BAND = 150
"""Maximum number of points of a band."""
DIGITS = {"step": 15, "seconds": 6}
"""Digits of the numbers on each axis of the page."""
AXES = tuple(DIGITS)


class Metric(NamedTuple):
    """One chart: the name in metrics.jsonl, a title, a description, and the largest possible value."""

    name: str
    title: str
    about: str
    most: float | None = None


METRICS = (
    Metric(EVALUATION, "Evaluation return", "mean return of greedy episodes on fixed seeds that training does not use"),
    Metric(TRAINING, "Training return", "mean return of finished episodes, with sampled actions"),
    Metric("eval/success_rate", "Evaluation success", "share of greedy episodes that succeeded", most=1.0),
    Metric("rollout/success_rate", "Training success", "share of finished episodes that succeeded", most=1.0),
)


@dataclass(frozen=True)
class Line:
    """The thinned curve of one run; ``x`` has one array for each axis."""

    run: RunRecord
    x: dict[str, np.ndarray]
    y: np.ndarray


@dataclass(frozen=True)
class Middle:
    """The interquartile mean of a group over one axis, with its interval (NaN for one run) and the number of runs."""

    x: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: np.ndarray


@dataclass(frozen=True)
class Curves:
    """One metric of one group."""

    group: Group
    lines: list[Line]
    middles: dict[str, Middle]


def max_points(runs: int) -> int:
    """Maximum number of points of a curve if ``runs`` runs are drawn. Many runs get fewer points, so that the page stays small."""
    return max(MIN_POINTS, min(MAX_POINTS, MAX_TOTAL_POINTS // max(1, runs)))


def all_curves(section: Section, most: int) -> dict[Metric, list[Curves]]:
    """Every metric that a run of the section measured, in the order of its charts, with the curves of each group."""
    measured = [metric for metric in METRICS if any(metric.name in run.series for run in section.runs)]
    return {metric: [curves(group, metric.name, most) for group in section.groups] for metric in measured}


def curves(group: Group, metric: str, most: int = MAX_POINTS) -> Curves:
    """The curves of ``metric`` in a group, each with at most about ``most`` points."""
    lines = [_line(run, metric, most) for run in group.runs if metric in run.series]
    middles = {}
    for axis in AXES:
        present = [(line.x[axis], line.y) for line in lines if np.isfinite(line.x[axis]).all()]
        if present:
            middles[axis] = middle_of(present, min(most, MAX_IN_BAND))
    return Curves(group, lines, middles)


def thinned(x: Sequence[np.ndarray], y: np.ndarray, most: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Reduce a curve to at most ``most`` points.

    Each point is the mean of equally many measurements (the first may have fewer) and has the position of the last of them, as if the
    run had logged less often. The end of the curve keeps its position.
    """
    if len(y) <= most:
        return list(x), y
    each = -(-len(y) // most)
    ends = np.arange(len(y), 0, -each)[::-1]
    starts = np.append(0, ends[:-1])
    return [axis[ends - 1] for axis in x], np.add.reduceat(y, starts) / (ends - starts)


def _line(run: RunRecord, metric: str, most: int) -> Line:
    series = run.series[metric]
    x, y = thinned([series.step.astype(np.float64), series.seconds], series.value, most)
    if metric.startswith("eval/"):
        y = np.append(y[:-1], series.value[-1])  # the curve must end at the value in the table
    return Line(run, dict(zip(AXES, x, strict=True)), y)


def common_grid(x: Sequence[np.ndarray], most: int) -> np.ndarray:
    """Points at which curves are aggregated: the points of all curves if there are at most ``most``, else ``most`` equidistant points and
    the end of each curve."""
    union = np.unique(np.concatenate(x))
    if len(union) <= most:
        return union
    return np.unique(np.concatenate([np.linspace(union[0], union[-1], most), [axis[-1] for axis in x]]))


def on_grid(grid: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``y`` at ``grid``, linearly interpolated; NaN before its first and after its last point."""
    return np.interp(grid, x, y, left=np.nan, right=np.nan)


def middle_of(present: Sequence[tuple[np.ndarray, np.ndarray]], most: int) -> Middle:
    """The band over the curves ``(x, y)`` where at least half of them have data. Elsewhere it would jump whenever a curve ends."""
    grid = common_grid([x for x, _ in present], most)
    band = interquartile_band(np.array([on_grid(grid, x, y) for x, y in present]))
    enough = band.count >= max(1, len(present) / 2)
    return Middle(grid[enough], *(part[enough] for part in band))


def chart_data(metric: Metric, drawn: Sequence[Curves]) -> dict[str, Any]:
    """The data that the page's script draws. A group of one run has a line but no mean."""
    groups = []
    for found in drawn:
        lines = [
            {"name": line.run.label, "y": _rounded(line.y, 5)}
            | {axis: _rounded(line.x[axis], DIGITS[axis]) for axis in AXES if np.isfinite(line.x[axis]).all()}
            for line in found.lines
        ]
        middles = {
            axis: {
                "x": _rounded(m.x, DIGITS[axis]),
                **{name: _rounded(getattr(m, name), 5) for name in ("middle", "low", "high")},
                "count": m.count.tolist(),
            }
            for axis, m in found.middles.items()
            if len(found.lines) > 1
        }
        groups.append({"lines": lines, "middles": middles})
    return {"title": metric.title, "most": metric.most, "groups": groups}


def _rounded(values: np.ndarray, digits: int) -> list[Any]:
    """The shortest form for JSON: integers without a fraction, NaN as None."""
    numbers = [float(f"{value:.{digits}g}") if value == value else None for value in values.tolist()]
    return [int(n) if n is not None and abs(n) < 1e15 and n == int(n) else n for n in numbers]
