"""The image of a report: learning curves over steps and over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proximo.report.curves import AXES, Curves, Metric
from proximo.report.grouping import Section
from proximo.report.tables import measure_of

COLORS = ("#0072b2", "#d55e00", "#009e73", "#b5509a", "#c98a00", "#3a9bd9", "#6a4cb0", "#777777")
STYLES = ("-", "--", ":")
MAX_SECTIONS, MAX_NAMED = 12, 12
WIDTH, TALL, LINE = 11.0, 3.9, 0.26


def draw(path: Path, sections: Sequence[Section], curves: Sequence[dict[Metric, list[Curves]]]) -> None:
    """Write a PNG of the ``curves`` of each section. Only the page shows more than twelve environments."""
    # pyplot would search for a display and keep the figure in memory.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = sections[:MAX_SECTIONS]
    heights = [TALL + LINE * _legend_rows(section) for section in drawn]
    figure = Figure(figsize=(WIDTH, sum(heights)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subfigures(len(drawn), 1, height_ratios=heights, squeeze=False)
    for part, section, found in zip(parts[:, 0], drawn, curves, strict=False):
        _section(part, section, found)
    figure.savefig(path, metadata={"Software": None})


def _legend_rows(section: Section) -> int:
    return -(-min(len(section.groups), MAX_NAMED + 1) // 3)


def _section(part: Any, section: Section, curves: dict[Metric, list[Curves]]) -> None:
    part.suptitle(section.environment, fontweight="bold", parse_math=False)
    learning = next((metric for metric in curves if metric.name == measure_of(section)), next(iter(curves), None))
    if learning is None:
        part.text(0.5, 0.5, "nothing measured yet", ha="center")
        return
    steps, time = part.subplots(1, 2)
    main = curves[learning]
    handles = _curves(steps, learning, main, "step")
    _curves(time, learning, main, "seconds")
    _legend(part, main, handles)


def _legend(part: Any, main: Sequence[Curves], handles: Sequence[Any]) -> None:
    labels = [drawn.group.label if len(drawn.lines) < 2 else f"{drawn.group.label} ({len(drawn.lines)} runs)" for drawn in main]
    named = [(handle, label) for handle, label in zip(handles, labels, strict=True) if handle is not None]
    if len(named) > MAX_NAMED:
        named = [*named[:MAX_NAMED], (named[MAX_NAMED][0], f"… {len(named) - MAX_NAMED} more")]
    legend = part.legend(
        *zip(*named, strict=True), loc="outside lower center", ncols=min(3, len(named)), fontsize=8, frameon=False
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _curves(ax: Any, metric: Metric, drawn: Sequence[Curves], axis: str) -> list[Any]:
    """Draw into ``ax``. Returns for each group its line for the legend; None if it has none."""
    handles, scale = [], _scale(drawn) if axis == "seconds" else (1.0, "environment steps")
    for i, group in enumerate(drawn):
        look = {"color": COLORS[i % len(COLORS)], "linestyle": STYLES[i // len(COLORS) % len(STYLES)]}
        middle = group.middles.get(axis) if len(group.lines) > 1 else None
        handle = None
        for line in group.lines:
            thin = {"linewidth": 0.6, "alpha": 0.35} if middle is not None else {"linewidth": 1.6}
            marker = {"marker": "."} if len(line.y) == 1 else {}
            (handle,) = ax.plot(line.x[axis] / scale[0], line.y, **look, **thin, **marker)
        if middle is not None:
            ax.fill_between(middle.x / scale[0], middle.low, middle.high, color=look["color"], alpha=0.18, linewidth=0)
            (handle,) = ax.plot(middle.x / scale[0], middle.middle, linewidth=1.9, **look)
        handles.append(handle)
    _dress(ax, metric, scale[1])
    return handles


def _scale(drawn: Sequence[Curves]) -> tuple[float, str]:
    """The unit that fits the longest run, in seconds, and the label of the axis."""
    ends = [line.x[AXES[1]][-1] for group in drawn for line in group.lines]
    last = max((end for end in ends if math.isfinite(end)), default=0.0)
    seconds, name = (1.0, "seconds") if last < 180 else (60.0, "minutes") if last < 3 * 3600 else (3600.0, "hours")
    return seconds, f"{name} of training"


def _dress(ax: Any, metric: Metric, label: str) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    ax.set_title(metric.title, fontsize=11)
    ax.grid(color="#d9dce1", linewidth=0.5)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9)
    ax.xaxis.set_major_locator(MaxNLocator(6))
    if label == "environment steps":
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel(label, fontsize=9)
