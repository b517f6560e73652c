"""Pictures of learning curves, without pyplot, which would search for a display and keep them in memory."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from proximo.errors import ConfigError
from proximo.report.curves import Chart
from proximo.report.runs import EVALUATION, TRAINING, Section
from proximo.serialization import JsonObject
from proximo.tracking.progress import amount

COLORS = ("#0072b2", "#d55e00", "#009e73", "#b5509a", "#c98a00", "#3a9bd9", "#6a4cb0", "#777777")
STYLES = ("-", "--", ":")
STEPS = "environment steps"
WIDTH, HEIGHT, LINE, COLUMNS = 11.0, 3.9, 0.26, 3
"""Size of the curves of an environment and of a line of the legend in inches, and columns of the legend."""
MAX_PIXELS, DPI = 60_000, 110


class LearningCurve(Figure):
    """A figure that notebooks display."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


def draw(path: Path, sections: Sequence[Section], charts: Sequence[list[Chart]]) -> None:
    """Write a PNG with the first of the ``charts`` of each section, over steps and over time."""
    heights = [HEIGHT + LINE * -(-len(section.groups) // COLUMNS) for section in sections]
    figure = Figure(figsize=(WIDTH, sum(heights)), dpi=min(DPI, MAX_PIXELS / sum(heights)), layout="constrained")
    parts = figure.subfigures(len(sections), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, section, found in zip(parts, sections, charts, strict=True):
        part.suptitle(_plain(section.environment), fontweight="bold")
        if not found:
            part.text(0.5, 0.5, "nothing measured yet", ha="center")
            continue
        last, (steps, time) = found[0]["seconds"]["x"][-1], part.subplots(1, 2)
        unit, name = (1, "seconds") if last < 180 else (60, "minutes") if last < 3 * 3600 else (3600, "hours")
        handles = _curves(steps, found[0], "step", 1, STEPS)
        _curves(time, found[0], "seconds", unit, f"{name} of training")
        labels = [f"{_plain(label)} ({amount(len(runs), 'run')})" for label, runs in section.groups.items()]
        part.legend(handles, labels, loc="outside lower center", ncols=COLUMNS, fontsize=8, frameon=False)
    figure.savefig(path, metadata={"Software": None})


def _curves(axes: Any, chart: Chart, axis: str, unit: float, label: str) -> list[Any]:
    """Draw a chart. Returns the line of each group for the legend."""
    handles, x = [], chart[axis]["x"] / unit
    for i, group in enumerate(chart[axis]["groups"]):
        look = {"color": COLORS[i % len(COLORS)], "linestyle": STYLES[i // len(COLORS) % len(STYLES)]}
        look |= {"marker": "."} if len(x) == 1 else {}
        for line in group["lines"]:
            axes.plot(x, line["y"], linewidth=0.6, alpha=0.35, **look)
        axes.fill_between(x, group["low"], group["high"], color=look["color"], alpha=0.18, linewidth=0)
        handles += axes.plot(x, group["middle"], linewidth=1.8, **look)
    _style(axes, chart["title"], label)
    return handles


def draw_learning_curve(rows: Sequence[JsonObject], title: str, path: str | Path | None = None) -> Figure:
    """Draw the mean returns in ``rows`` of metrics, also to the file ``path``, if given. Raises ``ConfigError`` if they
    have none, or if the file cannot be written."""
    figure = LearningCurve(figsize=(7.0, 4.0), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    curves = ((TRAINING, "training episodes, sampled actions", ""), (EVALUATION, "evaluations, most probable actions", "o"))
    for (name, label, marker), color in zip(curves, COLORS, strict=False):
        if points := [(row["step"], row[name]) for row in rows if row.get(name) is not None]:
            marker = "o" if len(points) == 1 else marker
            axes.plot(*zip(*points, strict=True), color=color, linewidth=1.6, marker=marker, markersize=4, label=label)
    if not axes.lines:
        raise ConfigError("The agent has no returns to plot: call learn first, with more steps if no episode has ended.")
    _style(axes, _plain(title), STEPS)
    axes.set_ylabel("mean return", fontsize=9)
    axes.legend(frameon=False, fontsize=9)
    try:
        if path is not None:
            figure.savefig(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot write {path} ({error}): expected a name such as curve.png in a folder that exists.") from error
    return figure


def _style(axes: Any, title: str, label: str) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(label, fontsize=9)
    axes.grid(color="#d9dce1", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    if label == STEPS:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _plain(text: str) -> str:
    """``text`` without mathematical notation."""
    return text.replace("$", r"\$")
